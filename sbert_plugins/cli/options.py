"""The options of the commands, as tables."""

from typing import Any

from sbert_plugins.catalogue import METHODS

ARGUMENTS = """\
training arguments (any field of sentence-transformers' TrainingArguments, with underscores or dashes;
train --dry_run prints the defaults of a method):
  --learning_rate RATE               peak learning rate
  --max_steps N                      number of updates
  --num_train_epochs N               passes over the text, instead of a number of updates
  --per_device_train_batch_size N    rows per batch; the other rows of a batch are the negatives
  --gradient_accumulation_steps N    batches per update
  --eval_steps N                     updates between two checkpoints, and two evaluations
  --lr_scheduler_type NAME           linear, constant_with_warmup, cosine, ...
  --warmup_steps N                   updates in which the learning rate rises; below 1 their share
  --weight_decay RATE                weight decay of the optimizer
  --bf16 BOOL                        bfloat16 mixed precision (default: where it is fast)
  --sam_rho RADIUS                   Sharpness-Aware Minimization, which takes two passes per update
  --report_to NAME                   tensorboard, wandb, mlflow, ...
  --push_to_hub BOOL                 upload the trained model, to a private repository by default
  --hub_model_id USER/NAME           the repository
  --seed N                           of train (default: 42)
All others: https://sbert.net/docs/package_reference/sentence_transformer/training_args.html
"""
_POOLINGS = ["cls", "mean", "lasttoken", "mask", "first-last", "last-two"]
_FLAG = {"action": "store_true"}

# Tables of options: name -> keywords of add_argument. A name without dashes is an argument.
START: dict[str, dict[str, Any]] = {
    "--model": {
        "help": "path or Hub name of the start (default of recommended and compare: all-MiniLM-L6-v2; a "
        "paper's method needs one)"
    },
    "--revision": {"help": "branch or commit of the model on the Hub"},
    "--trust_remote_code": {**_FLAG, "help": "run code of the model's repository"},
    "--offline": {
        **_FLAG,
        "help": "use no network; without --model and TEXT, take the installed all-MiniLM-L6-v2 and the "
        "sentences of the package",
    },
    "--pooling": {
        "choices": _POOLINGS,
        "help": "of a plain language model; mask: the mask token of a template",
    },
    "--max_seq_length": {
        "type": int,
        "help": "tokens per sentence in training; the model keeps its own limit",
    },
    "--column": {
        "type": lambda names: [name.strip() for name in names.split(",")],
        "metavar": "NAME[,NAME]",
        "help": "columns of a table or dataset to read (default: anchor, text, sentence or the only one of "
        "strings; and positive or paraphrase)",
    },
    "--limit": {"type": int, "metavar": "N", "help": "read the first N sentences only"},
    "--dev": {**_FLAG, "help": "select the checkpoint by STS-B dev; train --protocol does so by itself"},
}
SCORES: dict[str, dict[str, Any]] = {
    "--pairs": {"metavar": "FILE", "help": "your graded pairs: tab-separated grade, sentence, sentence"},
    "--topics": {"metavar": "FILE", "help": "your texts with topics: tab-separated topic, text"},
    "--retrieval": {
        "metavar": "DIR",
        "help": "your search: queries.tsv and corpus.tsv (id, text), qrels.tsv (query id, text id, 1)",
    },
    "--documents": {
        "metavar": "PATH",
        "help": "documents for known-item search, which needs no labels: a file or folder as in train search",
    },
    "--rerank": {
        "metavar": "FILE",
        "help": "your candidates: tab-separated query, candidate, label (1 for a right answer)",
    },
    "--transfer": {**_FLAG, "help": "seven transfer tasks of SentEval, from --data_dir"},
    "--sts": {**_FLAG, "help": "the seven STS tasks, from --data_dir or else from the Hub"},
    "--data_dir": {
        "metavar": "DIR",
        "help": "the folder of the STS tasks (default: the environment variable SBERT_PLUGINS_DATA)",
    },
}
TRAIN: dict[str, dict[str, Any]] = {
    "method": {"metavar": "METHOD", "help": f"{', '.join(METHODS)}, or package.module:Class"},
    "text": {
        "nargs": "?",
        "metavar": "TEXT",
        "help": "a text file with a sentence per line, csv, tsv, json or jsonl (also .gz), parquet, a "
        "dataset on the Hub, or sts-sentences (all sentences of the STS tasks); required without --protocol "
        "and --offline",
    },
    "--output": {"help": "a new or empty folder (default: METHOD-model)"},
    **START,
    "--positives": {
        "choices": ["crops", "spans"],
        "help": "TEXT holds documents: pair a passage with another one of its document",
    },
    "--paraphrases": {"metavar": "FILE", "help": "a paraphrase of each sentence of TEXT"},
    "--loss": {
        "nargs": "+",
        "action": "extend",
        "default": [],
        "metavar": "KEY=VALUE",
        "help": "keywords of the loss",
    },
    "--keep": {
        "type": float,
        "metavar": "WEIGHT",
        "help": "recommended: weight of the self-distillation (default: 0.1 for an embedding model, else 0)",
    },
    "--columns": {
        "nargs": "+",
        "action": "extend",
        "default": [],
        "metavar": "KEY=VALUE",
        "help": "keywords of the function that makes the columns, such as top_k=5 of paser",
    },
    "--protocol": {
        "metavar": "NAME",
        "help": "train as a paper (paper) or its authors' code (official) describes",
    },
    "--patience": {
        "type": int,
        "metavar": "N",
        "help": "stop after N evaluations by STS-B dev without a better one",
    },
    "--start_weight": {
        "type": float,
        "default": 0.0,
        "metavar": "W",
        "help": "average the weights: W * start + (1 - W) * trained",
    },
    "--resume": {**_FLAG, "help": "continue the training in OUTPUT, or start it"},
    "--dry_run": {**_FLAG, "help": "print the settings and their sources, and stop"},
    "--keep_checkpoints": {**_FLAG, "help": "keep the checkpoints of a training that has ended"},
    "--share_examples": {**_FLAG, "help": "let the model card show sentences of TEXT"},
}
COMPARE: dict[str, dict[str, Any]] = {
    "methods": {
        "nargs": "+",
        "metavar": "METHOD",
        "help": "a name as in train, with keywords if wanted: pt-bert:attend_to=pooled,momentum=0.99",
    },
    "--text": {"help": "as in train (required without --offline)"},
    "--output": {"required": True, "help": "a new or empty folder, or that of the comparison to continue"},
    "--seeds": {"type": int, "default": 3, "metavar": "N", "help": "trainings per method (default: 3)"},
    **START,
}
EVALUATE: dict[str, dict[str, Any]] = {
    "models": {"nargs": "+", "metavar": "MODEL", "help": "path or Hub name"},
    "--names": {"nargs": "+", "metavar": "NAME", "help": "names of the models in tables and on the page"},
    "--pooling": {
        "choices": _POOLINGS,
        "help": "for a plain transformer (default: that of the first other model, or mean)",
    },
    "--revision": {"help": "branch or commit of the models on the Hub"},
    "--trust_remote_code": {**_FLAG, "help": "run code of the models' repositories"},
    "--offline": {**_FLAG, "help": "use no network"},
    "--text": {
        "metavar": "FILE",
        "help": "sentences, for pictures of the vectors (analysis.html with --report) and for --reconstruct",
    },
    "--reconstruct": {**_FLAG, "help": "let the decoder of each PaSeR MODEL write the phrases of --text"},
    "--report": {
        "metavar": "DIR",
        "help": "write DIR/index.html with plots; the first MODEL is the baseline",
    },
}
_MTEB: dict[str, dict[str, Any]] = {
    "--tasks": {
        "nargs": "+",
        "required": True,
        "metavar": "TASK",
        "help": "sets (paper-sts, quora, ...), benchmarks ('MTEB(eng, v2)'), tasks of mteb, or your own "
        "files: my_task.py, graded pairs, labels and texts, a folder for retrieval",
    },
    "--cache": {"metavar": "DIR", "help": "folder of results (default: MTEB_CACHE or ~/.cache/mteb)"},
}
MTEB_RUN: dict[str, dict[str, Any]] = {
    "model": {"metavar": "MODEL", "help": "path or Hub name"},
    "--name": {"help": "organization/model (default: the Hub name; for a path local/ and its last folders)"},
    "--revision": {"help": "commit of a public model, or of the model that a path is a copy of"},
    "--trust_remote_code": {**_FLAG, "help": "run code of the model's repository"},
    "--training_datasets": {
        "nargs": "*",
        "metavar": "TASK",
        "help": "MTEB tasks whose texts the model was trained on; none without a TASK (default: unknown)",
    },
    "--batch_size": {"type": int, "default": 32, "help": "sentences per encoder call (default: 32)"},
    "--offline": {**_FLAG, "help": "use no network"},
    **_MTEB,
}
MTEB_SUBMIT: dict[str, dict[str, Any]] = {
    "name": {"metavar": "MODEL", "help": "organization/model: the name that was scored"},
    "--revision": {"help": "commit of the model, if there are results of several commits"},
    "--implementation": {"metavar": "FILE", "help": "file for the model's description (default: MODEL.py)"},
    "--create_pr": {**_FLAG, "help": "push and open the pull request (needs mteb[github])"},
    **_MTEB,
}
# Commands: name -> what it does, and its options.
COMMANDS: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    "train": (
        "Train a model on sentences without labels. The model is then in OUTPUT/model.",
        TRAIN | SCORES,
    ),
    "compare": ("Compare methods on your text. All have one start and equal settings.", COMPARE | SCORES),
    "evaluate": (
        "Score models by your labels. Without labels: on STS, or with --offline on built-in pairs.",
        EVALUATE | SCORES,
    ),
    "methods": ("List the methods.", {}),
}
MTEB: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    "run": ("Score a model with mteb.", MTEB_RUN),
    "submit": (
        "Check the results of a public model. If they are complete, pass them to mteb's submission.",
        MTEB_SUBMIT,
    ),
}
