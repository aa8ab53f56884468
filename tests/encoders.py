"""Tiny encoders of eight architectures with three kinds of tokenizers, and sentences for them."""

import copy
import math
from collections import Counter

from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from sbert_plugins import data, recipes
from sbert_plugins.encoder import Encoder, Pass

LONG = (
    "The old man, who had lived by the sea for forty years, told the visitors that a storm was coming and "
    "that nobody in the village would sail before Sunday."
)
SENTENCES = [
    "A dog runs across the wet field.",
    "It is raining again today.",
    LONG,
    "Prices fell for the third month in a row.",
    "She plays the organ in a small church.",
    "Who invented the telephone?",
    "Add two spoons of sugar and stir until it has melted.",
    LONG.replace("old man", "young fisherman").replace("forty", "two"),
]

_HOSTILE = [
    "",
    " ",
    "a",
    "What means {mask}? {mask} {sep}",
    "{cls}",
    "Émile\u00a0means\u2003😀 [X] means.",
    "word " * 300,
]

_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
_VOCABULARY_SIZE = 1500

# name -> (kind of tokenizer, configuration)
_SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
ARCHITECTURES = {
    "bert": ("wordpiece", _SIZE),
    "electra": ("wordpiece", {**_SIZE, "embedding_size": 16}),
    "distilbert": ("wordpiece", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}),
    "mpnet": ("wordpiece", _SIZE),
    "roberta": ("bpe", _SIZE),
    "modernbert": (
        "bpe",
        {
            **_SIZE,
            "embedding_dropout": 0.1,
            "attention_dropout": 0.1,
            "mlp_dropout": 0.1,
            "global_attn_every_n_layers": 1,
        },
    ),
    "xlm-roberta": ("unigram", _SIZE),
    "deberta-v2": ("unigram", _SIZE),
}
_COUNTS: dict[str, data.TokenFrequencies] = {}


def project_text() -> list[str]:
    """Return the sentences that the package ships."""
    return recipes.offline_sentences_path().read_text(encoding="utf-8").splitlines()


def hostile_texts(model: SentenceTransformer) -> list[str]:
    """Return the sentences, and texts that are empty, long, or contain the tokenizer's special tokens."""
    marks = {name: getattr(model.tokenizer, f"{name}_token") for name in ("mask", "sep", "cls")}
    return SENTENCES + [text.format(**marks) for text in _HOSTILE]


def project_counts(tokenizer: PreTrainedTokenizerFast) -> data.TokenFrequencies:
    """Return the token counts of the project's text, made once for each tokenizer."""
    key = f"{tokenizer.backend_tokenizer.to_str()} {tokenizer.all_special_ids}"
    if key not in _COUNTS:
        _COUNTS[key] = data.TokenFrequencies.from_corpus(project_text(), tokenizer)
    return copy.deepcopy(_COUNTS[key])


def _counted_pieces(split: pre_tokenizers.PreTokenizer, number: int) -> list[tuple[str, bool, float]]:
    """Return pieces of the project's words, whether each starts a word, and the log of its share.

    All letters are among them. The trainers of WordPiece and Unigram iterate over hash maps: each process
    would get another vocabulary, and a test other numbers.
    """
    counts: Counter[tuple[str, bool]] = Counter()
    for line in project_text():
        for word, _ in split.pre_tokenize_str(line):
            word = word.removeprefix("▁")
            counts[word, True] += 1
            counts.update((word[-length:], False) for length in (2, 3, 4) if len(word) > length)
            counts.update((letter, starts) for letter in word for starts in (True, False))
    ordered = sorted(counts, key=lambda piece: (len(piece[0]) > 1, -counts[piece], piece))[:number]
    total = sum(counts[piece] for piece in ordered)
    return [(piece, starts, math.log(counts[piece, starts] / total)) for piece, starts in ordered]


def _wordpiece() -> Tokenizer:
    split = pre_tokenizers.BertPreTokenizer()
    pieces = [
        piece if starts else f"##{piece}"
        for piece, starts, _ in _counted_pieces(split, _VOCABULARY_SIZE - len(_SPECIAL))
    ]
    vocabulary = {piece: i for i, piece in enumerate([*_SPECIAL, *pieces])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="<unk>"))
    tokenizer.add_special_tokens(_SPECIAL)
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def _bpe() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY_SIZE,
        special_tokens=_SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(project_text(), trainer)
    return tokenizer


def _unigram() -> Tokenizer:
    split = pre_tokenizers.Metaspace()
    pieces = _counted_pieces(split, _VOCABULARY_SIZE - len(_SPECIAL) - 1)
    scored = [(f"▁{piece}" if starts else piece, score) for piece, starts, score in pieces]
    specials = [(token, 0.0) for token in _SPECIAL]
    rare = scored[-1][1] - 1  # for the marker alone, before a piece that does not start a word
    tokenizer = Tokenizer(models.Unigram([*specials, ("▁", rare), *scored], unk_id=_SPECIAL.index("<unk>")))
    tokenizer.add_special_tokens(_SPECIAL)
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def build_tokenizers(*, has_mask: bool = True) -> dict[str, PreTrainedTokenizerFast]:
    """Build a WordPiece, a byte-level BPE and a Unigram (SentencePiece) tokenizer of the project's sentences.

    They are always the same. Without ``has_mask`` they have no special tokens but the one that ends a text,
    as tokenizers of encoders that were pretrained without masks.
    """
    built = {}
    for name, build in {"wordpiece": _wordpiece, "bpe": _bpe, "unigram": _unigram}.items():
        tokenizer = build()
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>" if has_mask else "$A </s>",
            special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("<s>", "</s>")],
        )
        names = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>"}
        if has_mask:
            names |= {"cls": "<s>", "sep": "</s>", "mask": "<mask>"}
        built[name] = PreTrainedTokenizerFast(
            tokenizer_object=tokenizer,
            model_max_length=128,
            model_input_names=["input_ids", "attention_mask"],
            **{f"{key}_token": token for key, token in names.items()},
        )
    return built


class _Given(Encoder):
    def __init__(self, passes: list[Pass]) -> None:
        self.passes = passes

    def __call__(self, columns, **how):
        return self.passes


def given(*vectors: Tensor, tokens: Tensor | None = None, attended: Tensor | None = None) -> Encoder:
    """Return an encoder whose passes have these vectors, to compute the value of a loss for them."""
    return _Given([Pass(each, tokens, attended, slice(None)) for each in vectors])
