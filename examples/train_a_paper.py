"""Train the loss of a paper with the trainer, on the 1,281 sentences that come with the package.

    python examples/train_a_paper.py ArcCSELoss

Other losses are ``PTBERTLoss``, ``PaSeRLoss``, ``DenoSentLoss`` and ``SLTFAILoss``.

The script shows how to use a loss class in a program of your own: columns, arguments, trainer and saving. It
needs the extra ``offline``, and no network. The papers trained for thousands of updates, so the score after
these few updates does not show what a method can do.
"""

import sys

from sbert_plugins import data, evaluation, losses, recipes, training

UPDATES = 10
SENTENCES = 640


def main() -> None:
    """Train one loss, and print the score before and after."""
    method = sys.argv[1] if len(sys.argv) > 1 else "ArcCSELoss"
    model = recipes.offline_encoder(num_layers=4, max_seq_length=32)
    rows = data.read_sentences(recipes.offline_sentences_path(), limit=SENTENCES)
    if method == "PaSeRLoss":  # reads a sentence, a copy with a hidden phrase, and the phrase
        rows = data.paser_columns(rows, mask_token=model.tokenizer.mask_token, synonyms=None)
    loss = getattr(losses, method)(model)
    score = evaluation.PairsEvaluator(recipes.graded_pairs(), name="pairs")
    before = score(model)["pairs_spearman"]
    arguments = training.TrainingArguments(
        f"runs/{method}",
        max_steps=UPDATES,
        per_device_train_batch_size=32,
        learning_rate=3e-5,
        report_to="none",
    )
    trainer = training.SentenceTransformerTrainer(model=model, args=arguments, train_dataset=rows, loss=loss)
    trainer.train()
    model.save_pretrained(f"runs/{method}/model")
    print(f"Spearman x 100: {before:.2f} before, {score(model)['pairs_spearman']:.2f} after")


if __name__ == "__main__":
    main()
