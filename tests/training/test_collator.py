import random

import pytest
from datasets import Dataset, Value
from encoders import SENTENCES, project_text
from sentence_transformers import SentenceTransformerTrainingArguments

from sbert_plugins import losses, training
from sbert_plugins.training import LengthGroupedBatchSampler


def shuffle(row, rng):
    words = row["anchor"].split()
    rng.shuffle(words)
    return {"anchor": " ".join(words)}


class TestAugmentingCollator:
    def collator(self, model, seen, seed=0):
        def preprocess(texts, **keywords):
            seen.append(tuple(texts))
            return model.preprocess(texts, **keywords)

        return training.AugmentingCollator(preprocess, augment=shuffle, seed=seed)

    def test_depends_on_seed_epoch_and_text_only(self, tiny_encoder):
        rows = [{"anchor": sentence} for sentence in SENTENCES]
        seen = []
        for seed, epoch, batch in [(0, 0, rows), (0, 0, rows[::-1]), (0, 1, rows), (1, 0, rows)]:
            collator = self.collator(tiny_encoder(), seen, seed)
            collator.set_epoch(epoch)
            random.seed(len(seen))  # the global generator has no say
            collator(batch)
        assert seen[0] == seen[1][::-1]
        assert seen[0] != seen[2]
        assert seen[0] != seen[3]
        assert sorted(seen[0][0].split()) == sorted(SENTENCES[0].split())

    def test_a_callable_that_returns_nothing(self, tiny_encoder):
        collator = training.AugmentingCollator(tiny_encoder().preprocess, augment=lambda row, rng: None)
        with pytest.raises(ValueError, match="augment must return a row's texts by their columns, got None"):
            collator([{"anchor": "It is raining."}])

    def test_rows_of_the_dataset_stay_as_they_are(self, tiny_encoder):
        row = {"anchor": SENTENCES[0]}
        self.collator(tiny_encoder(), [])([row, row])
        assert row == {"anchor": SENTENCES[0]}

    @pytest.mark.parametrize(
        ("argument", "value"), [("prompts", {"anchor": "query: "}), ("router_mapping", {"anchor": "query"})]
    )
    def test_what_the_arguments_say_is_kept(self, argument, value, tiny_encoder, tmp_path):
        model = tiny_encoder()
        collator = self.collator(model, [])

        def asked(value):
            trainer = training.SentenceTransformerTrainer(
                model=model,
                args=SentenceTransformerTrainingArguments(str(tmp_path), report_to="none", use_cpu=True, **{argument: value}),
                train_dataset=Dataset.from_dict({"anchor": SENTENCES}),
                loss=losses.ArcCSELoss(model),
                data_collator=collator,
            )
            assert trainer.data_collator is collator  # what its owner sets later counts
            return getattr(trainer.data_collator, argument)

        assert asked(value) == value
        other = dict.fromkeys(value, "another")
        assert asked(other) == other  # not what the collator's first trainer said
        mine = dict.fromkeys(value, "mine")
        setattr(collator, argument, mine)
        assert asked(value) == mine

    def test_the_name_of_the_dataset_is_not_the_users_to_keep(self, tiny_encoder):
        rows = [{"anchor": sentence, "dataset_name": "one"} for sentence in SENTENCES]
        batch = self.collator(tiny_encoder(), [])(rows)  # whose function returns the anchor alone
        assert batch["dataset_name"] == "one"

    @pytest.mark.parametrize("accumulation", [1, 2])
    def test_a_resumed_run_sees_what_the_whole_one_saw(self, tiny_encoder, tmp_path, accumulation):
        def run(resume):
            seen = []
            model = tiny_encoder()
            trainer = training.SentenceTransformerTrainer(
                model=model,
                args=SentenceTransformerTrainingArguments(
                    str(tmp_path),
                    num_train_epochs=3,
                    per_device_train_batch_size=4,
                    gradient_accumulation_steps=accumulation,
                    save_steps=3,
                    report_to="none",
                    disable_tqdm=True,
                    use_cpu=True,
                ),
                train_dataset=Dataset.from_dict({"anchor": project_text()[:16]}),
                loss=losses.ArcCSELoss(model),
                data_collator=self.collator(model, seen),
            )
            trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3") if resume else None)
            return seen

        whole, resumed = run(False), run(True)
        left = 12 - 3 * accumulation
        assert len(whole) == 12
        assert resumed[-left:] == whole[-left:]
        assert len(set(whole)) == 12  # each epoch another order of words


class TestLengthGroupedBatchSampler:
    def sampler(self, **changes):
        dataset = Dataset.from_dict({"anchor": project_text(), "id": list(range(1281))})
        options = {"batch_size": 32, "drop_last": False, "seed": 5}
        return training.LengthGroupedBatchSampler(dataset, **(options | changes))

    def test_each_row_once(self):
        batches = list(self.sampler())
        assert sorted(i for batch in batches for i in batch) == list(range(1281))
        assert [len(batch) for batch in batches] == [32] * 40 + [1]
        assert [len(batch) for batch in self.sampler(drop_last=True)] == [32] * 40
        assert len(self.sampler()) == 41

    def test_batches_are_of_similar_length_and_in_random_order(self):
        lengths = [len(sentence) for sentence in project_text()]
        longest = [max(lengths[i] for i in batch) for batch in self.sampler()]
        padded = sum(max(lengths[i] for i in batch) * len(batch) for batch in self.sampler())
        assert padded / sum(lengths) < 1.2  # 2.0 in random batches of 32
        assert longest != sorted(longest, reverse=True)

    def test_epochs_differ_and_repeat(self):
        sampler = self.sampler()
        first = list(sampler)
        sampler.set_epoch(1)
        assert list(sampler) != first
        sampler.set_epoch(0)
        assert list(sampler) == first

    def test_in_the_trainer(self, tiny_encoder, tmp_path):
        model = tiny_encoder()
        trainer = training.SentenceTransformerTrainer(
            model=model,
            args=SentenceTransformerTrainingArguments(
                str(tmp_path),
                max_steps=3,
                per_device_train_batch_size=8,
                batch_sampler=training.LengthGroupedBatchSampler,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                use_cpu=True,
            ),
            train_dataset=Dataset.from_dict({"anchor": project_text()[:100]}),
            loss=losses.ArcCSELoss(model),
        )
        trainer.train()
        assert isinstance(trainer.get_train_dataloader().batch_sampler, training.LengthGroupedBatchSampler)

    def test_fewer_rows_than_a_batch(self):
        dataset = Dataset.from_dict({"anchor": ["one", None, "three"]})
        assert list(training.LengthGroupedBatchSampler(dataset, 8, True)) == []
        assert [sorted(batch) for batch in training.LengthGroupedBatchSampler(dataset, 8, False)] == [[0, 1, 2]]

    def test_large_strings(self):
        dataset = Dataset.from_dict({"anchor": SENTENCES}).cast_column("anchor", Value("large_string"))
        assert len(list(training.LengthGroupedBatchSampler(dataset, 4, False))) == 2

    def test_a_transform_that_renames_columns(self):
        dataset = Dataset.from_dict({"text": SENTENCES}).with_transform(lambda rows: {"anchor": rows["text"]})
        assert training.LengthGroupedBatchSampler(dataset, 4, False).lengths == [len(text) for text in SENTENCES]

    def test_nothing_to_measure(self):
        with pytest.raises(ValueError, match="dataset must have a column of strings to measure, got id"):
            training.LengthGroupedBatchSampler(Dataset.from_dict({"id": [1, 2]}), 2, False)

    def test_no_rows(self):
        with pytest.raises(ValueError, match="dataset must have at least one row, got none"):
            training.LengthGroupedBatchSampler(Dataset.from_dict({"anchor": []}), 2, False)


def test_a_row_is_as_long_as_its_longest_text():
    rows = Dataset.from_dict({"anchor": ["a", "aaa", None], "positive": ["bbbb", "b", "bb"]})
    assert LengthGroupedBatchSampler(rows, 2, False).lengths == [4, 3, 2]
