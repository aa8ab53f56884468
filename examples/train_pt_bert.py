"""Train PT-BERT on sentences, without labels.

The settings are chosen to run offline in about a minute on two CPU cores. The paper's are one command away:
``sbert-plugins train pt-bert --protocol paper --output runs/pt-bert``. The trainer is this package's: queue, momentum encoder and pseudo tokens belong to the loss, and it saves and resumes them.
"""

from sentence_transformers import SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from transformers import set_seed

from sbert_plugins import data, losses, recipes
from sbert_plugins.training import SentenceTransformerTrainer

OUTPUT = "runs/pt-bert-example"
SENTENCES = 640  # of the 1,281 that ship with the package; online: "sentence-transformers/wiki1m-for-simcse"
PSEUDO_TOKENS = 128  # the paper's; 0 is its baseline MoCo-BERT
QUEUE_SIZE = 256  # the paper's
BATCH_SIZE = 32  # the paper's 64 would fill the queue in 4 of 10 updates
LEARNING_RATE = 1e-4  # the recipe's 3e-5 is for a million sentences
MAX_SEQ_LENGTH = 64  # SimCSE's 32 would hide the lengths that this method is about
SEED = 42

# Four layers of MiniLM, which needs no network. Online: SentenceTransformer("bert-base-uncased").
model = recipes.offline_encoder(max_seq_length=MAX_SEQ_LENGTH)
train_dataset = data.read_sentences(recipes.offline_sentences_path(), limit=SENTENCES)
set_seed(SEED)  # the pseudo tokens are drawn here, before the trainer sets its seed
loss = losses.PTBERTLoss(model, num_pseudo_tokens=PSEUDO_TOKENS, queue_size=QUEUE_SIZE)

# Pairs graded for this project; online: evaluation.load_sts("STS-B dev", hub=True).
evaluator = EmbeddingSimilarityEvaluator(*recipes.graded_pairs(), name="graded", main_similarity="cosine")
before = evaluator(model)["graded_spearman_cosine"]

trainer = SentenceTransformerTrainer(
    model=model,
    args=SentenceTransformerTrainingArguments(
        output_dir=OUTPUT,
        num_train_epochs=1,
        per_device_train_batch_size=BATCH_SIZE,
        learning_rate=LEARNING_RATE,
        logging_steps=5,  # prints contrastive, and of the diagnostics how full the queue is
        save_strategy="no",
        report_to="none",
        seed=SEED,
    ),
    train_dataset=train_dataset,
    loss=loss,
)
trainer.train()
after = evaluator(model)["graded_spearman_cosine"]

model.save_pretrained(f"{OUTPUT}/model")
print(f"Graded pairs, Spearman x 100: {100 * before:.2f} before, {100 * after:.2f} after. Model: {OUTPUT}/model")
