"""A grid of trainings, method by seed, on one text and from one start: scores, records, a table and a page."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sbert_plugins.recipes.building import build_loss
from sbert_plugins.recipes.cells import Cell, Method, leave_out_neighbours, read_methods, read_record
from sbert_plugins.recipes.checked import check_columns, check_count, check_patience, how_prepared, read_seeds, run_values
from sbert_plugins.recipes.compare_page import warning_of_tests, write_page
from sbert_plugins.recipes.encoders import build_encoder, check_encoder, pooling_of, truncated_to
from sbert_plugins.recipes.methods import recipe_of
from sbert_plugins.recipes.neighbours import neighbours_of
from sbert_plugins.recipes.output import (
    RUN_FILE,
    changes,
    encoder_mark,
    encoder_settings,
    has_checkpoint,
    held,
    read_results,
    refuse_file,
    remove_folder,
    text_mark,
    time_text,
    write_json,
)
from sbert_plugins.recipes.provenance import mixed_versions, provenance
from sbert_plugins.recipes.recommended import RECOMMENDED
from sbert_plugins.recipes.run import repetitions, train
from sbert_plugins.recipes.scoring import Scorer
from sbert_plugins.recipes.settings import Settings, processes
from sbert_plugins.recipes.summary import Summary, digits_of, printed, shown, summarise
from sbert_plugins.recipes.texts import read_text

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.evaluation import BaseEvaluator

    from sbert_plugins.evaluation import ScoredPairs

logger = logging.getLogger(__name__)
_START = "start.json"
_SOME = 1000  # sentences, to build a loss that will train on all


class Comparison(NamedTuple):
    """What :func:`compare` returns: rows of numbers, the printed table, the page, and why cells failed, by name."""

    rows: list[Summary]
    table: list[list[str]]
    page: Path
    failed: dict[str, str]


@dataclass(frozen=True)
class _Grid:
    """What all cells share."""

    sentences: Dataset
    text: str | None
    build: Callable[[], SentenceTransformer]
    settings: Settings
    score: Scorer
    dev: ScoredPairs | None
    bf16: bool | None
    report: Callable[[str], None]
    neighbours: int
    keep_models: bool

    def start(self) -> SentenceTransformer:
        """Build the encoder that every cell starts from."""
        from sbert_plugins.encoder import apply_mask_template

        model = self.build()
        return apply_mask_template(model) if self.settings.pooling == "mask" else model

    def cells(self, methods: Sequence[Method], seeds: Sequence[int], output: Path, start: SentenceTransformer) -> list[Cell]:
        """Return all cells, a seed of each method and then the next, with all that decides their numbers."""
        made = [self._made_with(method, seeds[0], start) for method in methods]
        return [
            Cell(method, seed, output, values | {"seed": seed})
            for seed in seeds
            for method, values in zip(methods, made, strict=True)
        ]

    def _made_with(self, method: Method, seed: int, start: SentenceTransformer) -> dict[str, Any]:
        settings, prepared = method.settings(self.settings), how_prepared(recipe_of(method.name), self.sentences)
        made = run_values(
            method.name,
            self.sentences,
            start,
            settings,
            seed,
            self.bf16,
            method.loss_keywords,
            {},
            prepared,
            self.text,
            self.dev,
        )
        return made | {"scored_on": self.score.mark, "selected_by": None if self.dev is None else "STS-B dev"}


def compare(
    methods: Sequence[str],
    text: str | Path | Dataset,
    *,
    output: str | Path,
    evaluators: Sequence[BaseEvaluator],
    model: str | Callable[[], SentenceTransformer],
    seeds: int | Sequence[int] = 3,
    settings: Settings | None = None,
    dev: ScoredPairs | None = None,
    column: str | None = None,
    limit: int | None = None,
    data_dir: str | Path | None = None,
    hub: bool = False,
    name: str | None = None,
    bf16: bool | None = None,
    force: bool = False,
    neighbours: int = 10,
    keep_models: bool = True,
    report: Callable[[str], None] = logger.info,
) -> Comparison:
    """Train each method on a text with each seed, from one encoder and with one set of settings, and score what comes out.

    ``output`` then holds ``index.html``, ``start.json``, and for each cell ``<method>_seed<N>.json`` and a folder of that name
    with ``model/``. A comparison that was killed goes on: finished cells are skipped, one that was begun is resumed.

    Args:
        methods: Names of :data:`RECIPES`, ``name:key=value,key=value`` with keywords of the loss or settings of its own, or
            ``package.module:Class`` for a loss class of one's own. The others are compared with the first.
        text: Sentences: a name as in :func:`read_text`, or a dataset with the column ``anchor``, and ``positive`` where each
            sentence has one: the methods must take it.
        output: A new or empty directory, or that of an earlier comparison.
        evaluators: What scores the start and each result, all in one way. Nothing is chosen by them.
        model: Path or Hub name of the encoder, or a function that builds it, the same each time.
        seeds: How many, from 0, or which.
        settings: Of all trainings; by default those of ``recommended``, also for the other methods: what is compared are
            losses, at equal updates.
        dev: STS-B dev. With it each training ends with its best checkpoint by this, otherwise with its last.
        column: Column of a table or Hub dataset.
        limit: Use the first sentences only.
        data_dir: Of the STS tasks, for ``sts-sentences``.
        hub: Take these from the Hub in any case.
        name: What page, records and cards call a dataset; ``organization/name`` is one on the Hub.
        bf16: As in :func:`train`.
        force: Make cells anew that were made with other settings, text or encoder, and score those anew that were scored by
            other labels, instead of refusing.
        neighbours: Sentences of the text whose neighbours records and page show; 0 for records that may be published, also
            of cells that are finished.
        keep_models: Whether the models stay. A grid of a hundred cells is some kilobytes of records without.
        report: Called with each message for the person who waits.

    Returns:
        Rows, table, page, and the cells that failed: they lose no other.

    Raises:
        ValueError: For methods, seeds or a text that cannot be used, in one of several processes, or for an ``output`` whose
            cells were made with something else, each named. All of this comes before anything is trained.
        FileExistsError: If ``output`` holds something else than a comparison, or another process trains one of the cells: two
            calls may share an output, with other methods or other seeds.
    """
    asked = read_methods(methods)
    numbers = _seeds(seeds)
    output = _checked_directory(Path(output))
    grid = _Grid(
        sentences=_sentences(text, column=column, limit=limit, data_dir=data_dir, hub=hub),
        text=str(text) if isinstance(text, str | Path) else name,
        build=_builder(model, (settings or RECOMMENDED.settings).pooling),
        settings=settings or RECOMMENDED.settings,
        score=Scorer(evaluators),
        dev=dev,
        bf16=bf16,
        report=report,
        neighbours=neighbours,
        keep_models=keep_models,
    )
    _check_methods(grid, asked)
    check_encoder(encoder := grid.start())
    cells = grid.cells(asked, numbers, output, encoder)
    _say_notes(grid, cells)
    begins_with = _begins_with(grid, encoder)
    _check_losses(grid, cells)
    _refuse_others(cells, output, begins_with, force=force)
    start = _start(grid, encoder, output, begins_with)
    _run_all(grid, cells, start)
    return _ended(grid, cells, start, output)


def _builder(model: str | Callable[[], SentenceTransformer], pooling: str) -> Callable[[], SentenceTransformer]:
    """Return what builds the start; an encoder can be called, too, and builds none."""
    if not (isinstance(model, str) or (callable(model) and not hasattr(model, "forward"))):
        raise ValueError(f"model must be a name, or a function that builds an encoder each time, got {type(model).__name__}.")
    return model if callable(model) else lambda: build_encoder(model, pooling=pooling)


def _check_methods(grid: _Grid, asked: Sequence[Method]) -> None:
    """Refuse methods that cannot be trained on these columns, or wait for evaluations that there are none of."""
    for method in asked:
        check_columns(recipe_of(method.name), grid.sentences.column_names)
        check_patience(method.settings(grid.settings).patience, has_dev=grid.dev is not None)


def _check_losses(grid: _Grid, cells: Sequence[Cell]) -> None:
    """Refuse values that a method's loss does not take, before hours go into the others: each is built once."""
    some = grid.sentences.select(range(0, len(grid.sentences), 1 + len(grid.sentences) // _SOME))
    asked = {cell.method.text: cell.method for cell in cells if cell.method.loss_keywords and not cell.is_finished}
    for method in asked.values():
        recipe, settings, model = recipe_of(method.name), method.settings(grid.settings), grid.start()
        with suppress(OSError, TypeError), truncated_to(model, settings.max_seq_length):  # of these the cell tells
            try:
                found = recipe.keywords(some, model, settings, method.loss_keywords) if recipe.keywords else {}
                build_loss(method.name, model, **(found | method.loss_keywords))
            except ValueError as error:
                raise ValueError(f"method {method.text}: {error}") from error
        del model
        gc.collect()  # an encoder is part of a circle


def _say_notes(grid: _Grid, cells: Sequence[Cell]) -> None:
    """Say once what each training of a recipe would say, and what test sets are not for."""
    notes = [note for cell in cells for note in _notes(grid, cell)]
    for note in dict.fromkeys([*notes, warning_of_tests(grid.score.test_sets)]):
        if note:
            grid.report(note)


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    if processes() > 1:
        raise ValueError("a comparison trains one cell after the other in one process: start it without torchrun.")
    return read_seeds(seeds)


def _checked_directory(output: Path) -> Path:
    """Refuse a directory that is somebody else's."""
    refuse_file(output)
    # A kill may leave a .tmp behind.
    others = output.exists() and any(path.suffix != ".tmp" for path in output.iterdir())
    if others and not (output / _START).exists():
        raise FileExistsError(f"output must be new, empty or that of a comparison, got {output}, which holds something else.")
    return output


def _make_directory(output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    probe = output / ".writable"
    probe.touch()  # said now, not when the first training is over
    probe.unlink(missing_ok=True)  # of two calls that share an output the other one may have been here


def _sentences(text: str | Path | Dataset, *, limit: int | None, **how: Any) -> Dataset:
    from datasets import Dataset

    if isinstance(text, str | Path):
        sentences = read_text(text, limit=limit, **how)
    elif not isinstance(text, Dataset):
        raise ValueError(f"text must be a name, a path or a datasets.Dataset, got {type(text).__name__}: Dataset.from_dict.")
    elif of_names := [name for name, value in how.items() if value]:
        raise ValueError(f"{', '.join(of_names)} would be of a text by name, and text is a dataset: leave it out.")
    else:
        sentences = text if limit is None else text.select(range(min(limit, len(text))))
    if sentences.column_names not in (["anchor"], ["anchor", "positive"]):
        raise ValueError(
            f"text must have the column anchor, and may have positive behind it, got {', '.join(sentences.column_names)}: "
            "select_columns."
        )
    check_count(sentences)
    return sentences


def _refuse_others(cells: Sequence[Cell], output: Path, begins_with: dict[str, Any], *, force: bool) -> None:
    """Refuse, before anything is trained, what is there and was made otherwise; with ``force`` remove these cells."""
    for cell in cells:
        if differs := cell.what_differs():
            if not force:
                raise ValueError(
                    f"{cell.folder} was made with {differs}: ask for the same, make it anew with --force (force=True), or "
                    "name another output."
                )
            with held(cell.folder):
                cell.record_path.unlink(missing_ok=True)
                if cell.what_differs():  # the training, not what it was scored on
                    cell.clear()
    if not force and (others := _left_out(cells, output)) and (output / _START).exists():
        record = read_record(output / _START)
        if differs := changes(record, {key: value for key, value in begins_with.items() if key in record}):
            raise ValueError(
                f"{output} holds {', '.join(others)}, made with {differs}: ask for the same, leave these out with --force "
                "(force=True), or name another output."
            )


def _begins_with(grid: _Grid, encoder: SentenceTransformer) -> dict[str, Any]:
    """Return what decides the numbers of the start."""
    return {
        "encoder": encoder_mark(encoder),
        "encoder_settings": encoder_settings(encoder),
        "text": text_mark(grid.sentences, grid.text),
        "scored_on": grid.score.mark,
        "pooling": pooling_of(encoder),
        "max_seq_length": encoder.max_seq_length,
        "layers": getattr(getattr(encoder.transformers_model, "config", None), "num_hidden_layers", None),
    }


def _start(grid: _Grid, encoder: SentenceTransformer, output: Path, made: dict[str, Any]) -> dict[str, Any]:
    """Return scores and neighbours of the encoder before any training; on record, they are not made again."""
    _make_directory(output)
    path = output / _START
    if path.exists() and not changes(record := read_record(path), made):
        if 0 < grid.neighbours <= len(record["neighbours"]):
            return record
    else:
        grid.report(f"Scoring the start: {made['encoder']['name']}, {made['pooling']} pooling.")
        scores = grid.score(encoder)
        shows = {"scores": scores, "main": grid.score.main(scores)}
        shows |= {"lower": grid.score.lower(scores), "undirected": grid.score.undirected(scores)}
        record = made | shows | {"notes": grid.score.notes} | provenance(encoder.device)
    write_json(path, record | {"neighbours": neighbours_of(encoder, grid.sentences, shown=grid.neighbours)})
    return read_record(path)


def _run_all(grid: _Grid, cells: Sequence[Cell], start: dict[str, Any]) -> None:
    """Run the cells that are not finished, and say of each where it is among them."""
    for place, cell in enumerate(cells, start=1):
        where = f"{place}/{len(cells)} {cell.method.text}, seed {cell.seed}"
        if cell.is_finished:
            grid.report(f"{where}: finished before, {cell.record_path.name}")
        else:
            grid.report(f"{where} ...")
            with held(cell.folder):
                _run(grid, cell, start)


def _run(grid: _Grid, cell: Cell, start: dict[str, Any]) -> None:
    """Train and score one cell, and put it on record; why it failed, if it did."""
    try:
        record = _trained(grid, cell)
    except Exception as error:  # whatever it is, the other cells are not lost
        logger.debug("a cell failed", exc_info=error)
        reason = f"{type(error).__name__}: {error}" if not isinstance(error, ValueError) else str(error)
        if not grid.neighbours:  # a record that may be published
            reason = reason.replace(getattr(error, "texts", "") or "\0", "")
        cell.write({"failed": reason, **provenance()})
        grid.report(f"  failed: {reason}")
        return
    cell.write(record)
    # Optimizer and all, of no use to a finished training.
    with suppress(OSError):  # nothing is lost
        remove_folder(cell.folder / "checkpoints" if grid.keep_models else cell.folder)
    row = summarise({cell.method.text: [cell.made_with | record]}, start["main"])
    digits = {title: digits_of(title, start, row) for title in start["main"]}
    scores = ", ".join(
        f"{title} {shown(start['scores'][title], digits=count)} to {shown(record['scores'][title], digits=count)}"
        for title, count in digits.items()
    )
    grid.report(f"  {scores}" + (f"; training took {known}" if (known := time_text(record)) else ""))


def _trained(grid: _Grid, cell: Cell) -> dict[str, Any]:
    """Train a cell, go on where it was interrupted, or load it where only its scores are missing."""
    settings = cell.method.settings(grid.settings)
    results_path = cell.folder / "results.json"
    resume = False
    was_begun = (cell.folder / RUN_FILE).exists() and not changes(read_results(cell.folder / RUN_FILE), cell.trained_with)
    if was_begun and results_path.exists():
        model, results = build_encoder(str(cell.folder / "model")), read_results(results_path)
    else:
        resume = was_begun and has_checkpoint(cell.folder)
        if not resume:
            cell.clear()
        model = grid.start()
        if encoder_mark(model)["sha256"] != cell.made_with["encoder"]["sha256"]:
            raise ValueError("model must build one encoder each time, got weights that differ: seed what is random.")
        results = train(
            cell.method.name,
            grid.sentences,
            model,
            output=cell.folder,
            settings=settings,
            seed=cell.seed,
            bf16=grid.bf16,
            dev=grid.dev,
            loss_keywords=cell.method.loss_keywords,
            resume=resume,
            text=grid.text,
            report=_without(grid.report, _notes(grid, cell)),
        )
    dev = "eval_stsb-dev_spearman_cosine"
    return {
        "scores": grid.score(model),
        "seconds": results["seconds"],
        "evaluation_seconds": results.get("evaluation_seconds"),
        "steps": results["steps"],
        "saved_update": results.get("saved_update", results["steps"]),
        "rows": results["rows"],
        "pooling": results["pooling"],
        "loss": results["loss"],
        "curve": [
            {"step": entry["step"], "STS-B dev": 100 * entry[dev]} for entry in results["log"] if entry.get(dev) is not None
        ],
        "log": results["log"],
        "neighbours": neighbours_of(model, grid.sentences, shown=grid.neighbours),
        "date": results["date"],
        **provenance(model.device),
    }


def _notes(grid: _Grid, cell: Cell) -> list[str | None]:
    """Return what each training of a recipe on this text says: it is said once."""
    recipe = recipe_of(cell.method.name)
    return [recipe.note, repetitions(cell.made_with["text"], len(grid.sentences), recipe)]


def _without(report: Callable[[str], None], lines: Sequence[str | None]) -> Callable[[str], None]:
    return lambda line: None if line in lines else report(line)


def _ended(grid: _Grid, cells: Sequence[Cell], start: dict[str, Any], output: Path) -> Comparison:
    """Return the numbers of all cells, and write the page."""
    if not grid.neighbours:  # of what this call leaves out, too: the folder may be published
        for path in output.glob("*_seed*.json"):
            leave_out_neighbours(path)
    records: dict[str, list[dict[str, Any]]] = {}
    for cell in cells:
        records.setdefault(cell.method.text, []).append(read_record(cell.record_path))
    if note := mixed_versions([start, *(record for of_method in records.values() for record in of_method)]):
        grid.report(note)
    if left := _left_out(cells, output):
        grid.report(f"In {output} and not on this page, for this call does not name them: {', '.join(left)}.")
    rows = summarise(records, list(start["scores"]))
    units = "pairs" if len(grid.sentences.column_names) == 2 else "sentences"
    page = write_page(output, start, records, rows, units=units, test_sets=grid.score.test_sets)
    failed = {f"{row.method}, seed {seed}": reason for row in rows for seed, reason in row.failed.items()}
    return Comparison(rows, printed(rows, start), page, failed)


def _left_out(cells: Sequence[Cell], output: Path) -> list[str]:
    """Return the cells of earlier calls that this one leaves out, by their files' names."""
    shown = {cell.record_path.name for cell in cells}
    return sorted(path.stem for path in output.glob("*_seed*.json") if path.name not in shown)
