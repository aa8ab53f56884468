"""Makes the checkpoints and saved models beside this file, with the package as it was at commit 9c97ebd.

    git worktree add --detach ../old 9c97ebd
    PYTHONPATH=../old python tests/old_checkpoints/make.py tests/old_checkpoints

Each method trains three updates and saves after two. The optimizer is plain gradient descent at a constant rate, which
remembers nothing, and each update is seeded, also for dropout, which some objectives need: who resumes needs no pickle.
Pickles are removed and the checkpoint's list of files is written again, by that commit.

Methods: one folder each, with ``checkpoint-2``, the plain ``model`` after three updates, ``own.safetensors`` (what the loss
owned then) and ``expected.json`` (terms of the third update, vectors of both models).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from datasets import Dataset
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, TrainerCallback

from sbert_plugins import data, losses, training

TEXTS = [
    "A dog runs across the wet field and barks.",
    "It is raining again today.",
    "Prices fell for the third month in a row.",
    "She plays the organ in a small church.",
    "Who invented the telephone?",
    "Add two spoons of sugar and stir.",
    "The old man told the visitors that a storm was coming.",
    "Nobody in the village would sail before Sunday.",
    "The church is small and the field is wet.",
    "A storm fell across the village today.",
    "Two visitors play in the rain again.",
    "Who told the old man the prices?",
]
_SPECIAL = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]
_DENOSENT = {
    "noise_dropout": 0.825,
    "decoder_layers": 1,
    "decoder_heads": 1,
    "decoder_feedforward": 16,
    "decoder_dropout": 0.0,
    "temperature": 0.03,
    "contrastive_weight": 1.0,
    "denoising_weight": 1.0,
    "reconstruct": "anchor",
    "projector": True,
    "mlm_head": "fresh",
}
_PASER = {
    "difference_scale": 10.0,
    "product_scale": 10.0,
    "decoder_layers": 1,
    "decoder_heads": 2,
    "decoder_feedforward": 16,
    "decoder_dropout": 0.0,
    "mlm_weight": 1.0,
    "mlm_probability": 0.15,
    "mlm_head": "fresh",
    "signed": False,
}
_PT_BERT = {
    "num_pseudo_tokens": 4,
    "queue_size": 6,
    "momentum": 0.885,
    "attend_to": "tokens",
    "temperature": 0.05,
    "projection_head": True,
    "momentum_dropout": False,
}
_ARCCSE = {
    "margin_degrees": 10.0,
    "temperature": 0.05,
    "triplet_weight": 0.1,
    "triplet_margin": 0.5,
    "near_mask_ratio": 0.2,
    "far_mask_ratio": 0.4,
    "min_words": 6,
    "projection_head": True,
}
_SLT_FAI = {
    "low_frequency_by": "mass",
    "low_frequency_share": 0.5,
    "adversarial_weight": 1.0,
    "filtering_weight": 1.0,
    "reversal_strength": 1.0,
    "masking_ratio": 0.2,
    "warmup_steps": 1,
}


def _simcse(model):
    return losses.WeightedSumLoss(model, {"simcse": (MultipleNegativesRankingLoss(model), 1.0, [0, 0])})


def _slt_fai(base):
    def build(model, **keywords):
        counts = data.TokenFrequencies.from_corpus(TEXTS, model.tokenizer)
        return losses.SLTFAILoss(model, base(model), frequencies=counts, **_SLT_FAI, **keywords)

    return build


def _anchors():
    return Dataset.from_dict({"anchor": TEXTS})


def _phrases():
    masked = [text.replace(f" {text.split()[2]} ", " [MASK] ", 1) for text in TEXTS]
    return Dataset.from_dict({"anchor": TEXTS, "masked": masked, "phrase": [text.split()[2] for text in TEXTS]})


# name -> (loss of a model and further keywords, dataset)
METHODS = {
    "arccse": (lambda model, **keywords: losses.ArcCSELoss(model, **_ARCCSE, **keywords), _anchors),
    "denosent": (lambda model, **keywords: losses.DenoSentLoss(model, **_DENOSENT, **keywords), _anchors),
    "paser": (lambda model, **keywords: losses.PaSeRLoss(model, **_PASER, **keywords), _phrases),
    "pt-bert": (lambda model, **keywords: losses.PTBERTLoss(model, **_PT_BERT, **keywords), _anchors),
    "slt-fai": (_slt_fai(_simcse), _anchors),
    "slt-fai-consert": (_slt_fai(losses.ConSERTLoss), _anchors),
}


class _Seed(TrainerCallback):
    def on_step_begin(self, args, state, control, **_):
        torch.manual_seed(state.global_step)


def make_trainer(output, model, loss, dataset, **options):
    """Return a trainer for three updates, and the list that the terms of each come to stand in."""
    seen: list[dict[str, float]] = []
    loss.register_forward_hook(lambda module, args, terms: seen.append({key: term.item() for key, term in terms.items()}))
    arguments = SentenceTransformerTrainingArguments(
        str(output),
        max_steps=3,
        save_steps=2,
        per_device_train_batch_size=4,
        learning_rate=0.05,
        optim="sgd",
        lr_scheduler_type="constant",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = training.SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=dataset, loss=loss, callbacks=[_Seed()], **options
    )
    return trainer, seen


def _encoder(folder: Path) -> SentenceTransformer:
    words = sorted({word for text in TEXTS for word, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(text)})
    vocabulary = {piece: i for i, piece in enumerate([*_SPECIAL, *words])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=24,
        model_input_names=["input_ids", "attention_mask"],
        **{f"{token[1:-1].lower()}_token": token for token in _SPECIAL},
    )
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(fast),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
        pad_token_id=fast.pad_token_id,
        initializer_range=0.2,
    )
    BertModel(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    transformer = Transformer(str(folder))
    return SentenceTransformer(modules=[transformer, Pooling(transformer.get_embedding_dimension(), "mean")], device="cpu")


def _make(method: str, folder: Path) -> None:
    from sbert_plugins.training.checkpoints import mark_complete
    from sbert_plugins.training.loss_state import own_state

    build, dataset = METHODS[method]
    scratch = folder / "scratch"
    scratch.mkdir(parents=True)
    model = _encoder(scratch)
    torch.manual_seed(1)
    loss = build(model)
    trainer, seen = make_trainer(folder, model, loss, dataset())
    trainer.train()
    shutil.rmtree(scratch)
    shutil.rmtree(folder / "checkpoint-3")
    own = {name: tensor.detach().clone().contiguous() for name, tensor in own_state(loss, model).items()}
    save_file(own, folder / "own.safetensors")
    model.save_pretrained(str(folder / "model"), create_model_card=False)
    checkpoint = folder / "checkpoint-2"
    for name in ("README.md", "optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"):
        (checkpoint / name).unlink()
    mark_complete(checkpoint, 2)
    vectors = {
        name: SentenceTransformer(str(folder / name), device="cpu").encode(TEXTS[:4]).tolist()
        for name in ("checkpoint-2", "model")
    }
    expected = {"third update": seen[2], "vectors": vectors}
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    for name in METHODS:
        shutil.rmtree(Path(sys.argv[1]) / name, ignore_errors=True)
        _make(name, Path(sys.argv[1]) / name)
