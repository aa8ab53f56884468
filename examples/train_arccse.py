"""Train ArcCSE on sentences, without labels.

The settings are chosen to run offline in about a minute on two CPU cores. The paper's are one command away:
``sbert-plugins train arccse --protocol paper --output runs/arccse``.
"""

from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

from sbert_plugins import data, losses, recipes

OUTPUT = "runs/arccse-example"
SENTENCES = 640  # of the 1,281 that ship with the package; online: "sentence-transformers/wiki1m-for-simcse"
BATCH_SIZE = 32  # the paper searches {8, 16, 32}
LEARNING_RATE = 1e-4  # the paper's 3e-5 is for a million sentences
MAX_SEQ_LENGTH = 64  # at 32 few sentences have the 25 words that the triplet term needs
SEED = 42

# Four layers of MiniLM, which needs no network. Online: SentenceTransformer("bert-base-uncased").
model = recipes.offline_encoder(max_seq_length=MAX_SEQ_LENGTH)
train_dataset = data.read_sentences(recipes.offline_sentences_path(), limit=SENTENCES)
loss = losses.ArcCSELoss(model)

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
        logging_steps=5,  # prints each term: arccon, triplet
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
