"""Alignment and uniformity: the position of embeddings on the unit sphere."""

from pathlib import Path
from typing import Any, Literal

import pandas

from sbert_plugins import functional

from .encoding import EmbeddingEvaluator, Encode
from .sts import load_sts


class AlignmentUniformityEvaluator(EmbeddingEvaluator):
    """Alignment and uniformity on STS-B, as ArcCSE, PT-BERT and PaSeR plot them. Lower is better for both.

    Alignment is the mean squared distance of the two embeddings of a positive pair. Uniformity is the
    logarithm of the mean Gaussian potential over all pairs of sentences (Wang and Isola, 2020,
    https://arxiv.org/abs/2005.10242). Neither is useful alone: a collapsed encoder has perfect alignment, and
    random embeddings have good uniformity.

    Split, threshold and repeated sentences change both values (alignment of all-MiniLM-L6-v2: 0.236 to
    0.330). Compare only values with the same settings. The default split is that of ArcCSE, the default
    threshold that of SimCSE.

    Args:
        data_dir: See ``STSSuiteEvaluator``.
        split: ``"dev"`` or ``"test"`` of STS-B.
        positive: Condition on the grades of positive pairs, such as ``">4"``.
        keep_duplicates: Compute uniformity over both sentences of every pair instead of over each distinct
            sentence once.
        hub: See ``STSSuiteEvaluator``.
        name: Prefix of the metrics' names. Default: ``stsb_dev`` or ``stsb_test``.
        **options: ``batch_size``, ``show_progress_bar`` and ``write_csv`` of ``EmbeddingEvaluator``.

    Returns:
        From a call, ``alignment`` and ``uniformity``, with the name in front.

    Raises:
        KeyError: For another value of ``split``.
        SyntaxError: For a malformed condition.
        ValueError: If there is no positive pair, or for embeddings that are not finite.
        FileNotFoundError: If the task's file is missing.

    Example:
        >>> from sbert_plugins import evaluation
        >>> evaluator = evaluation.AlignmentUniformityEvaluator(split="dev")
        >>> evaluator(model)
        {'stsb_dev_alignment': ..., 'stsb_dev_uniformity': -...}
    """

    def __init__(
        self,
        data_dir: str | Path | None = None,
        *,
        split: Literal["dev", "test"] = "dev",
        positive: str = ">4",
        keep_duplicates: bool = False,
        hub: bool = False,
        name: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__("alignment", name=f"stsb_{split}" if name is None else name, **options)
        self.greater_is_better = False
        pairs = load_sts("STS-B" if split == "test" else f"STS-B {split}", data_dir, hub=hub)
        self.positive_pairs = pandas.DataFrame(pairs._asdict()).query(f"scores {positive}")
        sentences = [*pairs.sentences1, *pairs.sentences2]
        self.sentences = sentences if keep_duplicates else list(dict.fromkeys(sentences))
        self.config = {
            "split": f"STS-B {split}",
            "positive": f"grade {positive}",
            "duplicates": "kept" if keep_duplicates else "dropped",
            "positive_pairs": len(self.positive_pairs),
            "sentences": len(self.sentences),
        }

    def compute(self, encode: Encode) -> dict[str, float]:
        """Return alignment and uniformity."""
        uniformity = functional.uniformity(encode(self.sentences))
        first, second = (encode(self.positive_pairs[name]) for name in ("sentences1", "sentences2"))
        return {"alignment": float(functional.alignment(first, second)), "uniformity": float(uniformity)}
