"""Trainings in two processes: ``python ranks.py ENCODER FOLDER``.

They have the environment that torchrun gives, and are forked: Python starts, and torch is read, once.
"""

import json
import os
import socket
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import quick_host
import torch
import torch.distributed as dist
import trainings
import transformers
from datasets import Dataset
from encoders import LONG, SENTENCES, project_text
from methods import LABELLED, METHODS
from sentence_transformers import SentenceTransformer
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from sbert_plugins import cli, losses, training
from sbert_plugins.encoder import rows_of_all_ranks, rows_of_other_ranks
from sbert_plugins.training.loss_state import own_state

ROWS = Dataset.from_dict({"anchor": project_text()[:32]})
# Methods with a queue, a count of updates, factors of all processes, a decoder, and none of these.
ACCUMULATED = ("pt-bert", "slt-fai", "balanced sum", "denosent", "arccse")
# Trainings by the command line. An output follows.
COMMANDS = {
    "simcse": "train simcse text.txt --model mean --pairs graded.tsv --max_steps 2 --use_cpu true "
    "--per_device_train_batch_size 8 --eval_steps 1 --sam_rho 0 --ddp_backend gloo --output",
    "search": "train search documents.txt --model mean --max_steps 20 --output",
}


def trainer_of(model, loss, folder, rows=ROWS, **changes):
    backend = {"ddp_backend": "gloo"} if "WORLD_SIZE" in os.environ else {}
    return trainings.trainer_of(model, loss, folder, rows, **({"max_steps": 2} | backend | changes))


def spread(tensors) -> float:
    """Return the largest difference of any tensor between the processes."""
    largest = 0.0
    for tensor in tensors:
        copies = [torch.zeros_like(tensor) for _ in range(dist.get_world_size())]
        dist.all_gather(copies, tensor.detach().contiguous())
        largest = max(
            largest,
            max((copy.float() - copies[0].float()).abs().max().item() for copy in copies if copy.numel()),
        )
    return largest


def train_method(encoder: str, folder: Path, method: str, **changes) -> dict:
    """Make two updates from different fresh weights in each process."""
    build, dataset = (METHODS | LABELLED)[method]
    model = SentenceTransformer(encoder, device="cpu")
    torch.manual_seed(100 + dist.get_rank())
    loss = build(model)
    fresh = spread(own_state(loss, model).values())
    trainer_of(model, loss, folder, dataset(40), **changes).train()
    return {
        "fresh": fresh,
        "own": spread(own_state(loss, model).values()),
        "encoder": spread(model.parameters()),
    }


def train_in_stages(encoder: str, folder: Path) -> list[float]:
    """Evaluate and train, unfreeze the embeddings, and do so with another trainer and the same loss."""
    model = SentenceTransformer(encoder, device="cpu")
    embeddings, loss = model[0].model.embeddings, losses.ConSERTLoss(model)
    start, spreads = embeddings.word_embeddings.weight.detach().clone(), []
    for trained in (False, True):
        embeddings.requires_grad_(trained)
        trainer = trainer_of(model, loss, folder, eval_dataset=ROWS, bf16=trained)
        for step in (trainer.evaluate, trainer.train):
            step()
            spreads.append(spread(model.parameters()))
    return [*spreads, (embeddings.word_embeddings.weight.detach() - start).abs().max().item()]


def log_diagnostics(encoder: str, folder: Path) -> dict:
    """Return what is logged of the number of each process, with two losses for two datasets."""

    class Rank(nn.Module):
        def __init__(self, model, name):
            super().__init__()
            self.model, self.diagnostics = model, {f"rank {name}": float(dist.get_rank())}

        def forward(self, features, labels=None):
            number = self.model(dict(features[0]))["sentence_embedding"].pow(2).mean()
            return {"term": number - number.detach() + 1.0}

    model = SentenceTransformer(encoder, device="cpu")
    loss = {name: Rank(model, name) for name in "ab"}
    model.prompts, model.default_prompt_name = {"query": "Question: "}, "query"  # of which a notice is logged
    trainer = trainer_of(
        model,
        loss,
        folder,
        {name: ROWS for name in "ab"},
        max_steps=-1,
        num_train_epochs=1,
        logging_strategy="epoch",
    )
    trainer.train()
    return trainer.state.log_history[-2]


def arccon_run(encoder: str, folder: Path, batch_size: int):
    """Make four steps of ArcCon with gathered negatives on 64 sentences, without dropout."""
    model = SentenceTransformer(encoder, device="cpu")
    torch.manual_seed(0)
    loss = losses.ArcCSELoss(model, triplet_weight=0, gather_across_devices=True)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    plain = {"learning_rate": 0.05, "optim": "sgd", "lr_scheduler_type": "constant", "max_steps": 4}
    rows = Dataset.from_dict({"anchor": project_text()[:64], "positive": project_text()[:64]})
    trainer = trainer_of(model, loss, folder, rows, per_device_train_batch_size=batch_size, **plain)
    trainer.train()
    logged = [entry["arccon"] for entry in trainer.state.log_history if "arccon" in entry]
    return {name: tensor.detach().numpy() for name, tensor in loss.state_dict().items()}, logged


def unequal_batches(encoder: str) -> dict:
    """Compute losses of five sentences in one process, one of them long, and of three in the other."""
    rank = dist.get_rank()
    rows = torch.arange(10.0 if rank == 0 else 6.0).reshape(-1, 2)  # 5 and 3 rows
    everyone, first = rows_of_all_ranks(rows)
    model = SentenceTransformer(encoder, device="cpu").train()
    loss = losses.ArcCSELoss(model, gather_across_devices=True, triplet_margin=0.5)
    sentences = [LONG, *SENTENCES[:4]] if rank == 0 else SENTENCES[:2] + SENTENCES[3:4]
    loss.model = DistributedDataParallel(model, find_unused_parameters=True)
    terms = loss([model.preprocess(sentences)])
    sum(terms.values()).backward()
    gradient = model[0].model.embeddings.word_embeddings.weight.grad
    queued = losses.PTBERTLoss(model, queue_size=6)
    queued([model.preprocess(sentences)])
    return {
        "others": rows_of_other_ranks(rows).flatten().tolist(),
        "everyone": everyone.flatten().tolist(),
        "first": first,
        "queue": [spread([queued.queue.rows]), int(queued.queue.seen)],
        "triplet": float(terms["triplet"]),
        "encoder_gradients": spread([gradient]),
        "finite": bool(torch.isfinite(gradient).all()),
    }


def write_inputs(encoder: str, folder: Path) -> None:
    """Write what the commands read: texts, labels, and the encoder with mean pooling."""
    text = project_text()
    documents = [" ".join(text[start : start + 4]) for start in range(0, 120, 4)]
    (folder / "documents.txt").write_text("\n\n".join(documents), encoding="utf-8")
    (folder / "text.txt").write_text("\n".join(text[:30]), encoding="utf-8")
    pairs = [f"{place % 6}\t{text[30 + place]}\t{text[150 + place]}" for place in range(30)]
    (folder / "graded.tsv").write_text("\n".join(pairs), encoding="utf-8")
    model = SentenceTransformer(encoder, device="cpu")
    model[1].pooling_mode = "mean"
    model.save_pretrained(str(folder / "mean"))


def run_commands() -> None:
    """Run the commands in both processes, and keep what they print."""
    for name, command in COMMANDS.items():
        with open(f"{name}.txt", "a") as printed, redirect_stdout(printed), redirect_stderr(printed):
            cli.main([*command.split(), name])


def main(rank: int, port: int) -> None:
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
        "CUDA_VISIBLE_DEVICES": "",
    }
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    quick_host.write_without_waiting()
    quick_host.leave_imports_to_themselves()
    encoder, folder = sys.argv[1], Path(sys.argv[2])
    training.TrainingArguments(str(folder), use_cpu=True, ddp_backend="gloo")  # starts the process group
    report = {}
    for method in METHODS | LABELLED:
        report[method] = train_method(encoder, folder / method, method)
    for method in ACCUMULATED:
        name, changes = f"{method} accumulated", {"gradient_accumulation_steps": 2}
        report[name] = train_method(encoder, folder / name, method, **changes)
    report["sam"] = train_method(encoder, folder / "sam", "arccse", sam_rho=0.05)
    state, logged = arccon_run(encoder, folder / "arccon", batch_size=8)
    report["arccon"] = {"logged": logged}
    report["stages"] = train_in_stages(encoder, folder / "stages")
    report["diagnostics"] = log_diagnostics(encoder, folder / "diagnostics")
    report["unequal"] = [None] * dist.get_world_size()
    dist.all_gather_object(report["unequal"], unequal_batches(encoder))
    os.chdir(folder)
    run_commands()
    if dist.get_rank() == 0:
        np.savez(folder / "arccon.npz", **state)
        (folder / "report.json").write_text(json.dumps(report))
    dist.barrier()  # no process may leave before the file is written
    dist.destroy_process_group()
    sys.stderr.flush()
    os._exit(0)  # gloo's threads sometimes abort a process when the interpreter ends (exit code -6)


if __name__ == "__main__":
    write_inputs(sys.argv[1], Path(sys.argv[2]))
    with socket.create_server(("localhost", 0)) as free:
        given = free.getsockname()[1]
    torch.multiprocessing.start_processes(main, (given,), nprocs=2, start_method="fork")
