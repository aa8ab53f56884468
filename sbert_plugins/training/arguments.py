"""Training arguments."""

from __future__ import annotations

from dataclasses import dataclass, field

from sentence_transformers import SentenceTransformerTrainingArguments


@dataclass
class TrainingArguments(SentenceTransformerTrainingArguments):
    """The training arguments of sentence-transformers, and the radius of Sharpness-Aware Minimization.

    Args:
        sam_rho: Radius of Sharpness-Aware Minimization (Foret et al., 2021), 0.05 in its paper. Each update
            then costs two forward and two backward passes. 0 switches it off. ``PTBERTLoss`` cannot be
            trained with it.

    Raises:
        ValueError: If ``sam_rho`` is negative or is combined with ``fp16``.

    Example:
        >>> from sbert_plugins.training import TrainingArguments
        >>> arguments = TrainingArguments(output_dir="output", sam_rho=0.05)
    """

    sam_rho: float = field(
        default=0.0,
        metadata={"help": "radius of Sharpness-Aware Minimization; 0 switches it off, its paper uses 0.05"},
    )

    def __post_init__(self) -> None:
        """Check the radius."""
        super().__post_init__()
        if not self.sam_rho >= 0:
            raise ValueError(f"sam_rho must be 0 or greater, got {self.sam_rho}.")
        if self.sam_rho and self.fp16:
            raise ValueError(
                "sam_rho does not work with fp16=True, whose gradient scaler expects one pass. Use bf16=True."
            )
