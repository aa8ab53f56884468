"""Training arguments."""

from dataclasses import dataclass, field, fields

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


# Fields that sentence-transformers' trainer does not read or cannot use, and what to do instead.
_IGNORED = dict.fromkeys(
    (
        "batch_eval_metrics",
        "deepspeed",
        "fsdp",
        "include_for_metrics",
        "label_names",
        "label_smoothing_factor",
        "length_column_name",
        "neftune_noise_alpha",
        "use_cache",
        "use_liger_kernel",
    ),
    "leave it out",
) | {"resume_from_checkpoint": "pass it to train()", "train_sampling_strategy": "set batch_sampler"}


def raise_if_ignored(arguments: SentenceTransformerTrainingArguments) -> None:
    """Raise ``ValueError`` for a training argument that is set and would have no effect."""
    for one in fields(arguments):
        value = getattr(arguments, one.name)
        if one.name in _IGNORED and value not in (one.default, None, False, "", [], {}):
            raise ValueError(
                f"The training argument {one.name}={value!r} would have no effect: {_IGNORED[one.name]}."
            )
