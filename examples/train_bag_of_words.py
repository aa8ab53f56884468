"""Train on the words of sentences alone: no labels, no negatives, one pass a sentence.

The settings are chosen to run offline in about a minute on two CPU cores; for more text ``sbert-plugins train bag-of-words
TEXT --output runs/words`` takes the recipe's.
"""

from sentence_transformers import SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

from sbert_plugins import data, losses, recipes
from sbert_plugins.training import SentenceTransformerTrainer

OUTPUT = "runs/bag-of-words-example"
SENTENCES = 640  # of the 1,281 that ship with the package; online: "sentence-transformers/wiki1m-for-simcse"
BATCH_SIZE = 32  # words compete with those of the batch; 64 gives fewer updates
LEARNING_RATE = 5e-5  # DenoSent's
MAX_SEQ_LENGTH = 32  # DenoSent's
SEED = 42

# Four layers of MiniLM, which needs no network. Online: recipes.build_encoder("bert-base-uncased", pooling="mean").
model = recipes.offline_encoder(max_seq_length=MAX_SEQ_LENGTH)
train_dataset = data.read_sentences(recipes.offline_sentences_path(), limit=SENTENCES)
# Words are scored by their own embeddings. The counts of BookCorpus, for BERT's vocabulary, say which are rare.
loss = losses.BagOfWordsLoss(model)

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
        logging_steps=5,  # prints words, and of the diagnostics what the vectors tell (information, in nats a token)
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
