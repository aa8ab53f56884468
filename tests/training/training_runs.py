"""A training as a function, or as processes: ``python training_runs.py '{"OUTPUT": {"method": ...}}'``.

Each run is killed while its second checkpoint is written, and resumed. Both are processes of their own,
forked before anything is drawn: Python starts, and torch is read, once.
"""

import json
import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import quick_host
import torch
import transformers
from encoders import project_counts
from methods import EVERY, HOST, LABELLED
from sentence_transformers import SentenceTransformer
from trainings import trainer_of

from sbert_plugins import training

# moment -> what is called then, and a file of which half remains
MOMENTS = {
    "after the marker": ("mark_complete", None),
    "half the marker": ("mark_complete", "checkpoint_complete.json"),
    "half a file": ("save_loss_state", "loss_state.safetensors"),
}


def kill_while_saving(moment: str) -> None:
    """Arrange a SIGKILL while the second checkpoint is written: no handler, no clean-up."""
    name, half = MOMENTS[moment]
    original, calls = getattr(training.trainer, name), []

    def wrapper(*arguments):
        original(*arguments)
        calls.append(arguments)
        if len(calls) == 2:
            if half:
                file = Path(arguments[-1]) / half
                file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
            os.kill(os.getpid(), signal.SIGKILL)

    setattr(training.trainer, name, wrapper)


def run(
    output: str,
    *,
    encoder: str,
    method: str = "arccse",
    accumulation: int = 1,
    workers: int = 0,
    rows: int = 18,
    steps: int = 6,
    save_steps: int = 2,
    kill: str | None = None,
    resume: bool = False,
    trainer_class=training.SentenceTransformerTrainer,
    callbacks=None,
    **settings,
):
    """Train on a CPU in one thread, from a fixed seed; return the trainer."""
    torch.set_num_threads(1)
    if kill:
        kill_while_saving(kill)
    build, dataset = (EVERY | HOST | LABELLED)[method]
    model = SentenceTransformer(encoder, device="cpu")
    torch.manual_seed(0 if not resume else 99)  # a resumed process owes nothing to its own fresh weights
    loss = build(model)
    arguments = {
        "max_steps": steps,
        "save_strategy": "steps",
        "save_steps": save_steps,
        "gradient_accumulation_steps": accumulation,
        "dataloader_num_workers": workers,
    }
    trainer = trainer_of(
        *(model, loss, output, dataset(rows)),
        trainer_class=trainer_class,
        callbacks=callbacks(loss) if callbacks else [],
        **(arguments | settings),
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def state_of(trainer) -> dict[str, np.ndarray]:
    """Everything that training changes: encoder, what the loss owns, the optimizer's moments."""
    tensors = {name: tensor.detach().numpy().copy() for name, tensor in trainer.loss.state_dict().items()}
    for i, moments in enumerate(trainer.optimizer.state_dict()["state"].values()):
        tensors |= {f"optimizer.{i}.{name}": value.numpy().copy() for name, value in moments.items()}
    return tensors


def log_of(trainer) -> list[dict]:
    """The logged numbers without the clock's."""
    return [
        {key: value for key, value in entry.items() if "runtime" not in key and "per_second" not in key}
        for entry in trainer.state.log_history
        if "loss" in entry
    ]


def run_and_write(output: str, **arguments) -> None:
    """Run, and write state and log."""
    finished = run(output, **arguments)
    np.savez(Path(output) / "state.npz", **state_of(finished))
    (Path(output) / "log.json").write_text(json.dumps(log_of(finished)))


def prepare(encoder: str) -> None:
    """Do before the forks what each run would do, without drawing a random number."""
    model = SentenceTransformer(encoder, device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
    project_counts(model.tokenizer)
    quick_host.leave_imports_to_themselves()


def forked(output: str, **arguments) -> int:
    """Run in a process of its own; return its exit status, below 0 for a signal."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        run_and_write(output, **arguments)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def kill_and_resume(output: str, *, kill: str = "after the marker", **arguments) -> list:
    """Return both exit statuses, and the name of the checkpoint from which the run is resumed."""
    killed = forked(output, kill=kill, **arguments)
    newest = training.newest_complete_checkpoint(output).name
    return [killed, forked(output, resume=True, **arguments), newest]


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    runs = json.loads(sys.argv[1])
    quick_host.compile_templates_once()
    quick_host.write_without_waiting()
    prepare(next(iter(runs.values()))["encoder"])
    found = {output: kill_and_resume(output, **arguments) for output, arguments in runs.items()}
    sys.stdout.write(json.dumps(found) + "\n")
