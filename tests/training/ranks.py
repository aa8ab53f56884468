"""What two ranks do together: ``torchrun --nproc_per_node 2 ranks.py ENCODER FOLDER``. Rank 0 writes ``report.json``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import quick_host
import torch
import torch.distributed as dist
import transformers
from datasets import Dataset
from encoders import LONG, SENTENCES, project_text
from methods import METHODS
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from sbert_plugins import losses, training
from sbert_plugins.encoder import rows_of_all_ranks, rows_of_other_ranks
from sbert_plugins.evaluation import ScoredPairs
from sbert_plugins.recipes.trainer import DEV_SCORE, dev_evaluator
from sbert_plugins.training.loss_state import own_state


def arguments(folder, **changes):
    defaults = {"logging_steps": 1, "save_strategy": "no", "report_to": "none", "disable_tqdm": True, "use_cpu": True}
    if "WORLD_SIZE" in os.environ:
        defaults["ddp_backend"] = "gloo"
    return SentenceTransformerTrainingArguments(str(folder), **(defaults | changes))


def spread(tensors) -> float:
    """The largest difference of any tensor between the ranks."""
    largest = 0.0
    for tensor in tensors:
        copies = [torch.zeros_like(tensor) for _ in range(dist.get_world_size())]
        dist.all_gather(copies, tensor.detach().contiguous())
        largest = max(largest, max((copy.float() - copies[0].float()).abs().max().item() for copy in copies if copy.numel()))
    return largest


def train_method(encoder: str, folder: Path, method: str, **changes) -> dict:
    """Two updates from different fresh weights on each rank."""
    build, dataset = METHODS[method]
    model = SentenceTransformer(encoder, device="cpu")
    torch.manual_seed(100 + dist.get_rank())
    loss = build(model)
    fresh = spread(own_state(loss, model).values())
    settings = {"max_steps": 2, "per_device_train_batch_size": 4, "learning_rate": 1e-3, **changes}
    sam_rho = settings.pop("sam_rho", None)
    trainer = training.SentenceTransformerTrainer(
        model=model, args=arguments(folder, **settings), train_dataset=dataset(40), loss=loss, sam_rho=sam_rho
    )
    trainer.train()
    return {
        "fresh": fresh,
        "own": spread(own_state(loss, model).values()),
        "encoder": spread(model.parameters()),
        "steps": trainer.state.global_step,
    }


def trained_in_stages(encoder: str, folder: Path, trainers: int) -> tuple[float, float]:
    """Unfreeze the embeddings between two trainings with one loss; return how far they moved, and their spread."""
    model = SentenceTransformer(encoder, device="cpu")
    model[0].model.embeddings.requires_grad_(False)
    settings = arguments(folder, max_steps=2, per_device_train_batch_size=4, learning_rate=1e-3)
    rows = Dataset.from_dict({"anchor": project_text()[:32]})
    loss, embeddings = losses.ConSERTLoss(model), model[0].model.embeddings
    first, *others = (
        training.SentenceTransformerTrainer(model=model, args=settings, train_dataset=rows, loss=loss) for _ in range(trainers)
    )
    first.train()
    embeddings.requires_grad_(True)
    before = embeddings.word_embeddings.weight.detach().clone()
    [first, *others][-1].train()
    return (embeddings.word_embeddings.weight.detach() - before).abs().max().item(), spread(model.parameters())


def trained_after_evaluations(encoder: str, folder: Path, **changes) -> list[float]:
    """Evaluate and train twice, and once more with a second trainer; the spread of the encoder after each training."""
    model = SentenceTransformer(encoder, device="cpu")
    loss, rows = losses.ConSERTLoss(model), Dataset.from_dict({"anchor": project_text()[:32]})
    settings = arguments(folder, max_steps=2, per_device_train_batch_size=4, learning_rate=1e-3, **changes)
    spreads = []
    first, second = (
        training.SentenceTransformerTrainer(model=model, args=settings, train_dataset=rows, eval_dataset=rows, loss=loss)
        for _ in range(2)
    )
    for trainer in (first, first, second):
        trainer.evaluate()
        trainer.train()
        spreads.append(spread(model.parameters()))
    return spreads


def stock_trainer_after_an_evaluation(encoder: str, folder: Path) -> str:
    """What is said of the host's trainer, which then averages no gradients."""
    model = SentenceTransformer(encoder, device="cpu")
    loss, rows = losses.PTBERTLoss(model, queue_size=8), Dataset.from_dict({"anchor": project_text()[:16]})
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments(folder, max_steps=1, per_device_train_batch_size=4),
        train_dataset=rows,
        eval_dataset=rows,
        loss=loss,
        callbacks=[training.LossStateCallback(loss)],
    )
    trainer.evaluate()
    try:
        trainer.train()
    except ValueError as error:
        return str(error)
    return f"{spread(model.parameters())} apart"


def queued_with_evaluations(encoder: str, folder: Path, trainer_class: type) -> int:
    """Return how many sentences a queue has seen after two updates that are each followed by an evaluation."""
    model = SentenceTransformer(encoder, device="cpu")
    loss = losses.PTBERTLoss(model, num_pseudo_tokens=0, projection_head=False)
    sentences = Dataset.from_dict({"anchor": project_text()[:16]})
    evaluated = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 4}
    settings = arguments(folder, max_steps=2, per_device_train_batch_size=4, **evaluated)
    callbacks = [training.LossStateCallback(loss)] if trainer_class is SentenceTransformerTrainer else []
    trainer_class(
        model=model, args=settings, train_dataset=sentences, eval_dataset=sentences, loss=loss, callbacks=callbacks
    ).train()
    return int(loss.queue.seen)


def arccon_run(encoder: str, folder: Path, batch_size: int):
    """Four steps of ArcCon with gathered negatives on the same 64 sentences, dropout off, plain gradient descent."""
    model = SentenceTransformer(encoder, device="cpu")
    torch.manual_seed(0)
    loss = losses.ArcCSELoss(model, triplet_weight=0, gather_across_devices=True)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    trainer = training.SentenceTransformerTrainer(
        model=model,
        args=arguments(
            folder,
            max_steps=4,
            per_device_train_batch_size=batch_size,
            learning_rate=0.05,
            optim="sgd",
            lr_scheduler_type="constant",
        ),
        train_dataset=Dataset.from_dict({"anchor": project_text()[:64], "positive": project_text()[:64]}),
        loss=loss,
    )
    trainer.train()
    logged = [entry["arccon"] for entry in trainer.state.log_history if "arccon" in entry]
    return {name.replace("module.", ""): tensor.detach().numpy() for name, tensor in loss.state_dict().items()}, logged


def unequal_batches(encoder: str) -> dict:
    """Rank 0 has five sentences with a long one, rank 1 three short ones; both finish, with each other's rows."""
    rank = dist.get_rank()
    rows = torch.arange(10.0 if rank == 0 else 6.0).reshape(-1, 2).requires_grad_()  # 5 and 3 rows
    others = rows_of_other_ranks(rows)
    others.sum().backward()
    expected = torch.arange(6.0 if rank == 0 else 10.0).reshape(-1, 2)
    everyone, first = rows_of_all_ranks(rows)
    all_rows = torch.equal(everyone, torch.cat([torch.arange(10.0), torch.arange(6.0)]).reshape(-1, 2))
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
        "rows": bool(torch.equal(others, expected)),
        "all_rows": all_rows and first == 5 * rank and not everyone.requires_grad,
        "queue": [spread([queued.queue.rows]), int(queued.queue.seen)],
        "row_gradients": rows.grad.unique().tolist(),
        "triplet": float(terms["triplet"]),
        "encoder_gradients": spread([gradient]),
        "finite": bool(torch.isfinite(gradient).all()),
    }


def scored_at_its_own_length(encoder: str, folder: Path) -> dict:
    """What STS-B dev's evaluator logs of texts that are longer than those of the training, and what one process finds."""
    model = SentenceTransformer(encoder, device="cpu")
    model.max_seq_length = 8
    texts = [f"{LONG} {text}" for text in project_text()[:24]]
    evaluator = dev_evaluator(ScoredPairs(texts, texts[1:] + texts[:1], [float(i % 5) for i in range(len(texts))]), 100)
    trainer = training.SentenceTransformerTrainer(
        model=model,
        args=arguments(folder),
        train_dataset=METHODS["arccse"][1](16),
        loss=losses.ArcCSELoss(model),
        evaluator=evaluator,
    )
    return {"logged": trainer.evaluate()[f"eval_{DEV_SCORE}"], "alone": evaluator(model)[DEV_SCORE]}


def updates_made(encoder: str, folder: Path, rows: int) -> int:
    """How many updates an epoch of so many rows has."""
    model = SentenceTransformer(encoder, device="cpu")
    args = arguments(folder, per_device_train_batch_size=8, num_train_epochs=1)
    dataset, loss = METHODS["arccse"][1](rows), losses.ArcCSELoss(model)
    return training.SentenceTransformerTrainer(model=model, args=args, train_dataset=dataset, loss=loss).train().global_step


def main() -> None:
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    quick_host.leave_imports_to_themselves()
    encoder, folder = sys.argv[1], Path(sys.argv[2])
    report = {}
    arguments(folder)  # starts the process group
    for method in METHODS:
        report[method] = train_method(encoder, folder / method, method)
        report[f"{method} accumulated"] = train_method(encoder, folder / method, method, gradient_accumulation_steps=2)
    report["sam"] = train_method(encoder, folder / "sam", "arccse", sam_rho=0.05)
    for trainer_class in (SentenceTransformerTrainer, training.SentenceTransformerTrainer):
        queued = queued_with_evaluations(encoder, folder / "queued", trainer_class)
        report[f"queued by {trainer_class.__module__.partition('.')[0]}"] = queued
    state, logged = arccon_run(encoder, folder / "arccon", batch_size=8)
    report["arccon"] = {"logged": logged}
    for name, changes in {"": {}, ", bf16": {"bf16": True, "eval_strategy": "steps", "eval_steps": 1}}.items():
        report[f"evaluated first{name}"] = trained_after_evaluations(encoder, folder / "evaluated", **changes)
    report["evaluated by the host"] = stock_trainer_after_an_evaluation(encoder, folder / "evaluated by the host")
    stages = {name: trained_in_stages(encoder, folder / "stages", count) for name, count in (("one", 1), ("two", 2))}
    report["stages"] = stages
    report["dev"] = scored_at_its_own_length(encoder, folder / "dev")
    report["updates"] = {rows: updates_made(encoder, folder / "updates", rows) for rows in (41, 47, 48)}
    by_rank = [None] * dist.get_world_size()
    dist.all_gather_object(by_rank, unequal_batches(encoder))
    report["unequal"] = by_rank
    if dist.get_rank() == 0:
        np.savez(folder / "arccon.npz", **state)
        (folder / "report.json").write_text(json.dumps(report))
    dist.barrier()  # the other rank is not to leave while this one writes: threads of a group that is torn down may abort
    dist.destroy_process_group()
    sys.stderr.flush()
    os._exit(0)  # all is written: gloo's threads abort a process now and then when the interpreter ends (exit code -6)


if __name__ == "__main__":
    main()
