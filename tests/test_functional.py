import math
from functools import partial

import pytest
import reference
import torch
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from sbert_plugins import functional

HALF = (torch.float32, torch.bfloat16, torch.float16)


def rows(count, dimension=8, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, dimension, generator=generator, dtype=torch.float64).to(dtype)


def on_circle(*degrees, dtype=torch.float64):
    """Unit vectors in the plane at the given angles."""
    angles = torch.tensor(degrees, dtype=torch.float64).deg2rad()
    return torch.stack([angles.cos(), angles.sin()], dim=1).to(dtype)


def lists():
    """Scores of a student and of a teacher, whose lists leave out some places."""
    student, teacher = rows(5, 4), 3 * rows(5, 4, seed=1)
    teacher[[0, 0, 3], [1, 2, 0]] = -math.inf
    return [student, teacher]


def classified_tokens(*lengths):
    """Logits and classes of tokens, of which so many in each row count."""
    counted = torch.arange(7) < torch.tensor(lengths).unsqueeze(1)
    return [rows(3 * 7, 2).view(3, 7, 2), (rows(3, 7, seed=1) > 0).long(), counted]


THREE, NEAR = [rows(6, seed=seed) for seed in range(3)], rows(6) + 0.3 * rows(6, seed=1)
# A name in functional.py and reference.py, and tensors and keywords that both take.
SAME_ARGUMENTS = [
    *(("info_nce", THREE[:count], {"temperature": t}) for count in (2, 3) for t in (0.03, 0.05, 1.0)),
    *(
        ("arccon_loss", [THREE[0], NEAR, *negatives], {"margin_degrees": degrees, "temperature": 0.05})
        for degrees in (0, 2, 10, 45, 120, 179)
        for negatives in ([], [rows(5, seed=2)])
    ),
    *(("order_triplet_loss", THREE, {"margin": margin}) for margin in (0.0, 0.3)),
    *(("alignment", THREE[:2], {"alpha": alpha}) for alpha in (1.0, 2.0)),
    *(("uniformity", [rows(9)], {"t": t}) for t in (0.5, 2.0)),
    *(("nt_xent", [THREE[0], NEAR], {"temperature": t}) for t in (0.1, 1.0)),
    *(("listwise_distillation", lists(), {"temperature": t}) for t in (0.05, 1.0)),
    *(  # the teacher's vectors may have another width
        (
            "similarity_distillation",
            [rows(6), rows(6, 5, seed=1)],
            {"temperature": t, "teacher_temperature": u},
        )
        for t, u in ((0.1, 0.05), (1.0, 1.0))
    ),
    *(("token_class_loss", classified_tokens(*lengths), {}) for lengths in ([3, 1, 7], [0, 2, 5], [0, 0, 0])),
    *(
        ("incomplete_sentence_loss", [rows(3, 2), rows(3, 2, seed=1), torch.tensor(usable).bool()], {})
        for usable in ([1, 1, 1], [0, 1, 0], [0, 0, 0])
    ),
]


class TestAgainstReference:
    """Float64, against the loops of reference.py."""

    @pytest.mark.parametrize(("name", "tensors", "keywords"), SAME_ARGUMENTS)
    def test_the_same_arguments(self, name, tensors, keywords):
        value = getattr(functional, name)(*tensors, **keywords)
        expected = getattr(reference, name)(*(tensor.numpy() for tensor in tensors), **keywords)
        assert value.item() == pytest.approx(expected, rel=1e-12)

    @pytest.mark.parametrize("angle", [0.0, 180.0, 175.0, 90.0])
    def test_arccon_loss_at_the_ends_of_the_circle(self, angle):
        # Positives at 0 and 180 degrees, and where theta + 10 degrees passes 180.
        a, p = on_circle(0, 40), on_circle(angle, 40 + angle)
        value = functional.arccon_loss(a, p, margin_degrees=10, temperature=0.5)
        expected = reference.arccon_loss(a.numpy(), p.numpy(), margin_degrees=10, temperature=0.5)
        # In float64 the angle of two equal vectors is only known to 1e-8: cos is flat there.
        assert value.item() == pytest.approx(expected, rel=1e-7)

    @pytest.mark.parametrize(("m", "n"), [(10.0, 10.0), (0.1, 1.0)])
    def test_decoding_signal(self, m, n):
        s, k = rows(5), rows(5, seed=1)
        value = functional.decoding_signal(s, k, difference_scale=m, product_scale=n)
        assert value.numpy() == pytest.approx(
            reference.decoding_signal(s.numpy(), k.numpy(), m=m, n=n), rel=1e-12
        )

    def test_token_cross_entropy(self):
        logits, targets = 3 * rows(7, 11), torch.tensor([0, 3, 10, 3, 5, 1, 2])
        expected = reference.mean_negative_log_likelihood(logits.numpy(), targets.tolist())
        assert functional.token_cross_entropy(logits, targets).item() == pytest.approx(expected, rel=1e-12)

    def test_token_cross_entropy_with_weights(self):
        logits, targets = 3 * rows(4, 11), torch.tensor([0, 3, 10, 3])
        weights = torch.tensor([1.0, 0.25, 0.5, 0.001])
        expected = reference.weighted_negative_log_likelihood(
            logits.numpy(), targets.tolist(), weights.tolist()
        )
        value = functional.token_cross_entropy(logits, targets, weights)
        assert value.item() == pytest.approx(expected, rel=1e-6)  # the weights are float32

    @pytest.mark.parametrize("threshold", [1e-6, 1e-3, 1.0])
    def test_token_weights(self, threshold):
        shares = torch.tensor([0.0, 1e-9, 1e-6, 1e-4, 0.06, 1.0], dtype=torch.float64)
        expected = [reference.token_weight(share, threshold) for share in shares.tolist()]
        assert functional.token_weights(shares, threshold=threshold).tolist() == pytest.approx(
            expected, rel=1e-12
        )

    def test_idf(self):
        counts = torch.tensor([0, 1, 5, 9, 10], dtype=torch.float64)
        expected = [reference.idf(count, 10) for count in counts.tolist()]
        assert functional.idf(counts, 10).tolist() == pytest.approx(expected, rel=1e-12)

    @pytest.mark.parametrize("weighed", [True, False])
    def test_bag_of_words_loss(self, weighed):
        # Words are numbered as the candidates are: 0 to 5, word 5 twice in one text, one text empty.
        texts, logits = [[0, 1, 5, 5], [], [2, 3, 4, 0]], 2 * rows(3, 6)
        weights = (
            torch.tensor([1.0, 0.5, 0.1, 1.0, 0.01, 0.7], dtype=torch.float64) if weighed else torch.ones(6)
        )
        row = torch.tensor([i for i, text in enumerate(texts) for _ in text])
        word = torch.tensor([word for text in texts for word in text])
        value = functional.bag_of_words_loss(logits, row, word, weights[word] if weighed else None)
        assert value.item() == pytest.approx(
            reference.bag_of_words_loss(texts, logits.tolist(), weights.tolist()), rel=1e-12
        )

    @pytest.mark.parametrize(
        ("main", "other"),
        [(2.0, 1.0), (2.0, 5.0), (0.0, 3.0), (3.0, 0.0), (0.0, 0.0), (2e-8, 1e-6), (2e-8, 1e-8), (2e8, 1e9)],
    )
    def test_balance_factor(self, main, other):
        norms = torch.tensor(main, dtype=torch.float64), torch.tensor(other, dtype=torch.float64)
        expected = reference.balance_factor(main, other, rho=0.7)
        assert functional.balance_factor(*norms, balance=0.7).item() == pytest.approx(expected, rel=1e-12)


class TestByHand:
    def test_nt_xent_of_two_orthogonal_pairs(self):
        # cos is 1 to the other view and 0 to the two views of the other sentence: log(1 + 2 e^-1).
        x = on_circle(0, 90)
        assert functional.nt_xent(x, x, temperature=1.0).item() == pytest.approx(
            math.log(1 + 2 * math.exp(-1)), rel=1e-12
        )

    def test_listwise_distillation_of_a_teacher_that_is_sure(self):
        # The first list has one entry; in the second, entry 1 of the two with cosines 0.1 log 3 and 0.
        student = torch.tensor([[0.3, 0.9, 0.1], [0.1 * math.log(3), 0.0, 5.0]], dtype=torch.float64)
        teacher = torch.tensor([[-math.inf, 2.0, -math.inf], [0.0, -800.0, -math.inf]])
        value = functional.listwise_distillation(student, teacher, temperature=0.1)
        assert value.item() == pytest.approx(math.log(4 / 3) / 2, rel=1e-12)

    def test_similarity_distillation_of_three_rows(self):
        # Each row sees two others. The student's are all at the same angle, so each of its shares is 1/2.
        student = on_circle(0, 120, 240)
        teacher = on_circle(0, 60, 180)
        value = functional.similarity_distillation(student, teacher, temperature=0.3, teacher_temperature=1.0)
        assert value.item() == pytest.approx(math.log(2), rel=1e-12)
        # The other way around, the target shares are 1/2 and the cosines of the teacher's rows are
        # (0.5, -1), (0.5, -0.5) and (-1, -0.5).
        value = functional.similarity_distillation(teacher, student, temperature=1.0, teacher_temperature=0.3)
        pairs = [(0.5, -1.0), (0.5, -0.5), (-1.0, -0.5)]
        expected = [math.log(math.exp(a) + math.exp(b)) - (a + b) / 2 for a, b in pairs]
        assert value.item() == pytest.approx(sum(expected) / 3, rel=1e-12)

    @pytest.mark.parametrize("count", [0, 1, 2])
    def test_similarity_distillation_of_two_rows_has_no_order(self, count):
        student = rows(count).requires_grad_()
        value = functional.similarity_distillation(
            student, rows(count), temperature=0.1, teacher_temperature=0.1
        )
        value.backward()
        assert value == 0
        assert not student.grad.any()

    def test_token_class_loss_is_a_mean_of_means(self):
        # A sentence of one token at probability 1/2 and one of three at 1/4 weigh the same.
        logits = torch.log(torch.tensor([[[0.5, 0.5]] * 3, [[0.25, 0.75]] * 3], dtype=torch.float64))
        counted = torch.tensor([[True, False, False], [True, True, True]])
        value = functional.token_class_loss(logits, torch.zeros(2, 3, dtype=torch.long), counted)
        assert value.item() == pytest.approx((math.log(2) + math.log(4)) / 2, rel=1e-12)

    def test_incomplete_sentence_loss_is_a_sum_of_two(self):
        # Both sentences of the first pair are called incomplete with 3/4; the second pair is left out.
        original = torch.log(torch.tensor([[0.25, 0.75], [0.01, 0.99]], dtype=torch.float64))
        value = functional.incomplete_sentence_loss(original, original, torch.tensor([True, False]))
        assert value.item() == pytest.approx(-math.log(0.25) - math.log(0.75), rel=1e-12)

    @pytest.mark.parametrize("strength", [0.0, 0.3, 1.0])
    def test_gradient_reversal(self, strength):
        x = rows(3).requires_grad_()
        y = functional.gradient_reversal(x, strength=strength)
        assert torch.equal(y, x)
        (y * torch.arange(8.0, dtype=torch.float64)).sum().backward()
        assert torch.equal(x.grad, (-strength * torch.arange(8.0, dtype=torch.float64)).expand(3, 8))

    @pytest.mark.parametrize(
        ("keywords", "expected"),
        [
            ({}, [[1, -2], [3, 1], [20, 30], [30, 20]]),
            (
                {"difference_scale": 2, "product_scale": 5, "signed": True},
                [[1, -2], [3, 1], [-4, -6], [15, -10]],
            ),
        ],
    )
    def test_decoding_signal_in_the_order_of_the_equation(self, keywords, expected):
        # E_s = (1, -2), E_s~ = (3, 1): differences -2 and -3, products 3 and -2, each ten times.
        sentence, masked = torch.tensor([[1.0, -2.0]]), torch.tensor([[3.0, 1.0]])
        assert functional.decoding_signal(sentence, masked, **keywords).tolist() == [expected]

    @pytest.mark.parametrize(("weights", "expected"), [(None, 1.5), (torch.tensor([3.0, 1.0]), 1.25)])
    def test_token_cross_entropy_of_two_tokens(self, weights, expected):
        # Probabilities 1/2 and 1/4: (log 2 + log 4) / 2. If the second counts a third of the first:
        # (log 2 + 1/3 log 4) / (4/3) = 5/4 log 2.
        logits = torch.tensor([[0.0, 0.0, -1e9, -1e9], [0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
        value = functional.token_cross_entropy(logits, torch.tensor([1, 2]), weights)
        assert value.item() == pytest.approx(expected * math.log(2), rel=1e-12)

    def test_token_weight_of_a_word_four_times_as_frequent(self):
        # sqrt(1 / 4).
        assert functional.token_weights(torch.tensor([4e-6]), threshold=1e-6).item() == pytest.approx(0.5)

    def test_idf_of_a_piece_of_half_the_documents(self):
        # log(1 + 1); and a piece of each of 10,000 documents has the smallest value.
        assert functional.idf(torch.tensor([5]), 10).item() == pytest.approx(math.log(2))
        assert functional.idf(torch.tensor([10_000]), 10_000).item() == pytest.approx(0.001)

    def test_bag_of_words_of_two_texts(self):
        # Two candidates; the texts' words have the probabilities 3/4 and 1/2: (log 4/3 + log 2) / 2.
        logits = torch.tensor([[math.log(3), 0.0], [0.0, 0.0]], dtype=torch.float64)
        value = functional.bag_of_words_loss(logits, torch.tensor([0, 1]), torch.tensor([0, 1]))
        assert value.item() == pytest.approx((math.log(4 / 3) + math.log(2)) / 2, rel=1e-12)

    def test_balance_of_a_gradient_four_times_the_main_one(self):
        assert functional.balance_factor(torch.tensor(2.0), torch.tensor(8.0), balance=1.0) == 0.25

    def test_nothing_scored_is_zero_and_has_a_gradient(self):
        logits = torch.zeros(0, 9, requires_grad=True)
        loss = functional.token_cross_entropy(logits, torch.zeros(0, dtype=torch.long))
        loss.backward()
        assert loss == 0
        assert logits.grad.shape == (0, 9)

    def test_info_nce_of_two_orthogonal_pairs(self):
        # cos is 1 to the own and 0 to the other positive: log(1 + e^-1).
        x = on_circle(0, 90)
        assert functional.info_nce(x, x, temperature=1.0).item() == pytest.approx(
            math.log(1 + math.exp(-1)), rel=1e-12
        )

    def test_info_nce_of_identical_rows(self):
        # Nothing tells the positive from the negatives: log of the batch size.
        x = on_circle(20, 20, 20, 20)
        assert functional.info_nce(x, x, temperature=0.05).item() == pytest.approx(math.log(4), rel=1e-12)

    def test_arccon_loss_with_sixty_degrees(self):
        # theta = 0 becomes cos 60 = 0.5, the other is at 90 with cos 0: log(1 + e^-0.5).
        x = on_circle(0, 90)
        value = functional.arccon_loss(x, x, margin_degrees=60, temperature=1.0)
        assert value.item() == pytest.approx(math.log(1 + math.exp(-0.5)), rel=1e-12)

    def test_arccon_loss_past_180_degrees_is_literal(self):
        # theta = 150, margin 60: cos 210 = -cos 30.
        a, p = on_circle(0, 90), on_circle(150, 240)
        # The other positives are at 240 from the first anchor (cos -0.5) and at 60 from the second (cos 0.5).
        own = -math.sqrt(3) / 2
        expected = (math.log(1 + math.exp(-0.5 - own)) + math.log(1 + math.exp(0.5 - own))) / 2
        value = functional.arccon_loss(a, p, margin_degrees=60, temperature=1.0)
        assert value.item() == pytest.approx(expected, rel=1e-12)

    def test_order_triplet_loss(self):
        # near at 60 (cos 0.5), far at 30 (cos 0.866): violated by 0.366; the second triplet is in order.
        value = functional.order_triplet_loss(on_circle(0, 0), on_circle(60, 30), on_circle(30, 60))
        assert value.item() == pytest.approx((math.sqrt(3) / 2 - 0.5) / 2, rel=1e-12)

    def test_alignment_of_a_right_angle(self):
        assert functional.alignment(on_circle(0), on_circle(90)).item() == pytest.approx(2.0, rel=1e-12)

    def test_uniformity_of_three_points(self):
        # 0, 90 and 180 degrees: squared distances 2, 2 and 4.
        expected = math.log((2 * math.exp(-4) + math.exp(-8)) / 3)
        assert functional.uniformity(on_circle(0, 90, 180)).item() == pytest.approx(expected, rel=1e-12)


def of_logits(function, *others):
    """Return a function of its first argument alone."""
    return lambda logits: function(logits, *others)


def teacher_with_a_gap():
    """Scores of which the first list leaves out one."""
    teacher = rows(3, 4, seed=1)
    teacher[0, 1] = -math.inf
    return teacher


def double(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def several(count, *shape):
    return [rows(*shape, seed) for seed in range(count)]


TARGETS = torch.tensor([0, 4, 2, 2])
ENDS = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]]).bool()
SOFT = {"temperature": 0.5, "teacher_temperature": 0.3}
# A function of tensors, each of which gets a gradient.
DIFFERENTIABLE = {
    "info_nce": (partial(functional.info_nce, temperature=0.5), several(3, 4, 5)),
    "arccon_loss": (partial(functional.arccon_loss, margin_degrees=10, temperature=0.5), several(3, 4, 5)),
    "arccon_loss 170": (
        partial(functional.arccon_loss, margin_degrees=170, temperature=0.5),
        several(3, 4, 5),
    ),
    "order_triplet_loss": (partial(functional.order_triplet_loss, margin=2.5), several(3, 4, 5)),
    "alignment": (functional.alignment, several(2, 4, 5)),
    "uniformity": (functional.uniformity, several(1, 5, 4)),
    "decoding_signal": (functional.decoding_signal, several(2, 4, 5)),
    "decoding_signal signed": (partial(functional.decoding_signal, signed=True), several(2, 4, 5)),
    "bag_of_words_loss": (
        of_logits(
            functional.bag_of_words_loss,
            torch.tensor([0, 0, 2]),
            torch.tensor([1, 4, 0]),
            double(1, 0.5, 0.1),
        ),
        several(1, 3, 5),
    ),
    "token_cross_entropy": (of_logits(functional.token_cross_entropy, TARGETS), several(1, 4, 5)),
    "token_cross_entropy weighted": (
        of_logits(functional.token_cross_entropy, TARGETS, double(1, 0.5, 0.1, 0.2)),
        several(1, 4, 5),
    ),
    "idf": (of_logits(functional.idf, 10), [double(0.5, 3, 7)]),
    "balance_factor": (partial(functional.balance_factor, balance=0.7), [double(2, 0.5), double(1, 3)]),
    "nt_xent": (partial(functional.nt_xent, temperature=0.5), several(2, 3, 5)),
    "listwise_distillation": (
        of_logits(partial(functional.listwise_distillation, temperature=0.3), teacher_with_a_gap()),
        several(1, 3, 4),
    ),
    "similarity_distillation": (
        of_logits(partial(functional.similarity_distillation, **SOFT), rows(4, 5, seed=1)),
        several(1, 4, 5),
    ),
    "token_class_loss": (
        of_logits(
            functional.token_class_loss,
            torch.tensor([[0, 1, 1], [1, 0, 0]]),
            torch.tensor([[True, True, False], [True, True, True]]),
        ),
        [rows(6, 2).view(2, 3, 2)],
    ),
    "incomplete_sentence_loss": (
        partial(functional.incomplete_sentence_loss, usable=torch.tensor([True, False, True])),
        several(2, 3, 2),
    ),
    "queue_info_nce": (
        partial(functional.queue_info_nce, is_negative=ENDS, temperature=0.5),
        [rows(3, 5), rows(3, 5, 1), rows(4, 5, 2)],
    ),
}


class TestGradients:
    """Against finite differences in float64."""

    @pytest.mark.parametrize(("function", "tensors"), DIFFERENTIABLE.values(), ids=DIFFERENTIABLE)
    def test_are_those_of_finite_differences(self, function, tensors):
        assert torch.autograd.gradcheck(function, [tensor.requires_grad_() for tensor in tensors])

    def test_token_weights(self):
        # Of no use to a training, yet smooth on both sides of the threshold.
        shares = torch.tensor([1e-3, 0.2, 0.7], dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(
            lambda shares: functional.token_weights(shares, threshold=0.1), [shares], eps=1e-7
        )

    def test_the_teacher_of_similarity_distillation_has_none(self):
        student, teacher = rows(4, 5).requires_grad_(), rows(4, 5, seed=1).requires_grad_()
        functional.similarity_distillation(student, teacher, **SOFT).backward()
        assert teacher.grad is None

    def test_reversal_is_the_negative_of_what_gradcheck_finds(self):
        # The one function here whose gradient is not its derivative.
        x = rows(3).requires_grad_()
        weight = rows(8, 4, seed=1)
        (plain,) = torch.autograd.grad((x @ weight).pow(2).sum(), x)
        (reversed_,) = torch.autograd.grad(
            (functional.gradient_reversal(x, strength=0.7) @ weight).pow(2).sum(), x
        )
        assert torch.allclose(reversed_, -0.7 * plain)

    @pytest.mark.parametrize("dtype", HALF, ids=str)
    def test_reversal_under_autocast(self, dtype):
        x = rows(3, dtype=dtype).requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = functional.gradient_reversal(x)
        y.sum().backward()
        assert y.dtype == x.grad.dtype == dtype
        assert (x.grad == -1).all()


def check_finite(value, *inputs):
    """Compute the gradients of the inputs. All numbers are finite, and the value is float32."""
    value.backward()
    assert value.dtype == torch.float32
    assert all(torch.isfinite(number).all() for number in (value, *(x.grad for x in inputs)))


class TestFinite:
    @pytest.mark.parametrize("dtype", HALF, ids=str)
    def test_slt_fai_losses_are_float32(self, dtype):
        logits = (1000 * rows(6, 2, dtype=dtype)).clamp(-3e4, 3e4).view(2, 3, 2).requires_grad_()
        usable = torch.tensor([True, False])
        value = functional.token_class_loss(
            logits, torch.ones(2, 3, dtype=torch.long), usable.unsqueeze(1).expand(2, 3)
        )
        value = value + functional.incomplete_sentence_loss(logits[:, 0], logits[:, 1], usable)
        value = value + functional.nt_xent(logits[:, 0], logits[:, 0], temperature=0.05)
        check_finite(value, logits)

    def test_a_pair_that_is_not_usable_may_be_anything(self):
        usable, numbers = torch.tensor([False, True]), torch.tensor([[math.inf, math.nan], [1.0, 2.0]])
        original, incomplete = numbers.clone().requires_grad_(), numbers.clone().requires_grad_()
        check_finite(functional.incomplete_sentence_loss(original, incomplete, usable), original, incomplete)
        assert not original.grad[0].any()

    def test_what_is_not_counted_may_be_anything(self):
        # Neither value nor gradient of padding, not even where it is not a number.
        logits = torch.zeros(1, 2, 2)
        logits[0, 1] = math.nan
        logits.requires_grad_()
        value = functional.token_class_loss(
            logits, torch.zeros(1, 2, dtype=torch.long), torch.tensor([[True, False]])
        )
        value.backward()
        assert value.item() == pytest.approx(math.log(2))
        assert (logits.grad[0, 1] == 0).all()

    @pytest.mark.parametrize("dtype", HALF, ids=str)
    @pytest.mark.parametrize("angle", [0, 180, 175, 90], ids=lambda angle: f"positive at {angle} degrees")
    @pytest.mark.parametrize("dimension", [2, 384])
    def test_arccon_loss(self, dtype, angle, dimension):
        # cos = 1, cos = -1 and theta + m > 180 degrees: value and gradients are finite in every dtype.
        anchors = torch.zeros(3, dimension)
        anchors[:, :2] = on_circle(0, 50, 100, dtype=torch.float32)
        positives = torch.zeros(3, dimension)
        positives[:, :2] = on_circle(angle, 50 + angle, 100 + angle, dtype=torch.float32)
        anchors, positives = (x.to(dtype).requires_grad_() for x in (anchors, positives))
        check_finite(
            functional.arccon_loss(anchors, positives, margin_degrees=10, temperature=0.05),
            anchors,
            positives,
        )

    @pytest.mark.parametrize("dtype", HALF, ids=str)
    @pytest.mark.parametrize("name", ["arccon_loss", "info_nce", "nt_xent", "queue_info_nce"])
    def test_a_zero_vector(self, name, dtype):
        # It has no direction: no gradient, where x / max(|x|, 1e-12) has one of 1e12.
        x = rows(4, 384)
        x[1] = 0
        x, y = x.to(dtype).requires_grad_(), rows(4, 384, seed=1).to(dtype)
        contrasts = {
            "arccon_loss": functional.arccon_loss,
            "info_nce": functional.info_nce,
            "nt_xent": functional.nt_xent,
            "queue_info_nce": lambda a, b, **k: functional.queue_info_nce(
                a, b, b, ~torch.eye(4, dtype=torch.bool), **k
            ),
        }
        check_finite(contrasts[name](x, y, temperature=0.05), x)
        assert (x.grad.norm(dim=1) > 0).tolist() == [True, False, True, True]

    @pytest.mark.parametrize("dtype", HALF, ids=str)
    def test_identical_random_rows(self, dtype):
        # Two views without dropout: cosines of 1 up to rounding, on either side of it.
        x = rows(64, 384).to(dtype)
        anchors, positives = x.clone().requires_grad_(), x.clone().requires_grad_()
        check_finite(functional.arccon_loss(anchors, positives), anchors, positives)

    @pytest.mark.parametrize("dtype", HALF, ids=str)
    @pytest.mark.parametrize("count", [0, 1, 3])
    def test_order_triplet_loss(self, dtype, count):
        x = rows(count, dtype=dtype).requires_grad_()
        loss = functional.order_triplet_loss(x, x * 1, x * -1)
        check_finite(loss, x)
        assert count or loss == 0

    @pytest.mark.parametrize("dtype", HALF, ids=str)
    def test_alignment_and_uniformity_of_equal_rows(self, dtype):
        x = rows(1, dtype=dtype).expand(4, -1).clone().requires_grad_()
        loss = functional.alignment(x, x.detach()) + functional.uniformity(x)
        check_finite(loss, x)
        assert loss.item() == pytest.approx(0, abs=1e-6)

    def test_alignment_by_a_power_that_is_steep_at_zero(self):
        # The pair that is one vector twice has no say: the gradient is that of the other pair.
        x, y = rows(2).requires_grad_(), rows(2, seed=1)
        functional.alignment(x, torch.stack([x[0].detach(), y[1]]), alpha=0.5).backward()
        alone = x.detach()[1:].requires_grad_()
        (functional.alignment(alone, y[1:], alpha=0.5) / 2).backward()
        torch.testing.assert_close(x.grad, torch.cat([torch.zeros(1, x.shape[1], dtype=x.dtype), alone.grad]))

    @pytest.mark.parametrize("dtype", HALF, ids=str)
    def test_decoding_signal_and_tokens_are_float32(self, dtype):
        # A product of 10 * 200 * 200 leaves float16; equal vectors are the kink of the absolute value.
        x = (200 * rows(3, 4)).to(dtype).requires_grad_()
        signal = functional.decoding_signal(x, x)
        logits = (40 * rows(5, 30)).to(dtype).requires_grad_()
        loss = functional.token_cross_entropy(logits, torch.zeros(5, dtype=torch.long))
        assert signal.dtype == loss.dtype == torch.float32
        check_finite(signal.sum() + loss, x, logits)


class TestRelations:
    @pytest.mark.parametrize("dtype", [torch.float64, *HALF], ids=str)
    def test_no_margin_is_info_nce_to_the_last_bit(self, dtype):
        results = []
        for function in (partial(functional.arccon_loss, margin_degrees=0), functional.info_nce):
            a, p = rows(16, 32, dtype=dtype).requires_grad_(), rows(16, 32, 1, dtype=dtype).requires_grad_()
            loss = function(a, p, temperature=0.05)
            loss.backward()
            results.append((loss.detach(), a.grad, p.grad))
        assert all(torch.equal(x, y) for x, y in zip(*results, strict=True))

    @pytest.mark.parametrize("with_negatives", [False, True])
    def test_info_nce_is_multiple_negatives_ranking(self, with_negatives):
        columns = [rows(16, 32, seed) for seed in range(2 + with_negatives)]
        host = MultipleNegativesRankingLoss(torch.nn.Identity(), scale=20.0)
        expected = host.compute_loss_from_embeddings(columns, None)
        assert functional.info_nce(*columns, temperature=0.05).item() == pytest.approx(
            expected.item(), rel=1e-12
        )

    def test_a_margin_raises_the_loss(self):
        a, p = rows(16, 32), rows(16, 32) + rows(16, 32, 1)
        losses = [functional.arccon_loss(a, p, margin_degrees=m).item() for m in (0, 5, 10, 20)]
        assert losses == sorted(losses)


class TestPTBERT:
    """Eq. 1 to 4."""

    def inputs(self, batch=3, length=6, pseudo=4, width=8):
        tokens = rows(batch * length, width, 1).reshape(batch, length, width)
        matrices = {
            name: rows(width, width, seed) / 2 for seed, name in enumerate(("query", "key", "value"), start=3)
        }
        return rows(pseudo, width), rows(batch, width, 2), tokens, matrices

    def test_mapping_is_the_references(self):
        pseudo, sentence, tokens, matrices = self.inputs()
        lengths = [6, 2, 1]
        mask = torch.arange(6) < torch.tensor(lengths).unsqueeze(1)
        value = functional.pseudo_token_mapping(pseudo, sentence, tokens, mask.long(), **matrices)
        arrays = {name: matrix.numpy() for name, matrix in matrices.items()}
        for i, length in enumerate(lengths):
            expected = reference.pseudo_token_mapping(
                pseudo.numpy(), sentence[i].numpy(), tokens[i].numpy(), length, **arrays
            )
            assert value[i].numpy() == pytest.approx(expected, rel=1e-11)

    def test_mapping_by_hand(self):
        # Pseudo tokens weigh tokens 0 and 2 by 1 : 1 and 1 : 3, so Z = (1, 1.5); y weighs these by 4 : 8.
        one = torch.ones(1, 1, dtype=torch.float64)
        value = functional.pseudo_token_mapping(
            torch.tensor([[0.0], [math.log(3) / 2]], dtype=torch.float64),
            torch.tensor([[2 * math.log(2)]], dtype=torch.float64),
            torch.tensor([[[0.0], [2.0], [77.0]]], dtype=torch.float64),
            torch.tensor([[1, 1, 0]]),
            query=one,
            key=one,
            value=one,
        )
        assert value.item() == pytest.approx(4 / 3, rel=1e-12)

    def test_mapping_gradients(self):
        pseudo, sentence, tokens, matrices = self.inputs(2, 3, 2, 3)
        inputs = [x.requires_grad_() for x in (pseudo, sentence, tokens, *matrices.values())]
        mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
        assert torch.autograd.gradcheck(
            lambda p, y, t, q, k, v: functional.pseudo_token_mapping(p, y, t, mask, query=q, key=k, value=v),
            inputs,
        )

    def test_one_vector_to_attend_to_leaves_the_pseudo_tokens_idle(self):
        # The map is then two linear ones, whatever the pseudo tokens are.
        pseudo, sentence, _, matrices = self.inputs()
        pseudo.requires_grad_()
        value = functional.pseudo_token_mapping(pseudo, sentence, sentence.unsqueeze(1), None, **matrices)
        torch.testing.assert_close(value, sentence @ matrices["value"] @ matrices["value"])
        value.pow(2).sum().backward()
        assert not pseudo.grad.any()

    @pytest.mark.parametrize("temperature", [0.05, 1.0])
    def test_queue_info_nce_is_the_references(self, temperature):
        queries, positives, queue = rows(4), rows(4, seed=1), rows(9, seed=2)
        is_negative = rows(4, 9, 3) > 0
        is_negative[2] = False
        value = functional.queue_info_nce(queries, positives, queue, is_negative, temperature=temperature)
        others = [queue[kept].numpy() for kept in is_negative]
        expected = reference.queue_info_nce(
            queries.numpy(), positives.numpy(), others, temperature=temperature
        )
        assert value.item() == pytest.approx(expected, rel=1e-12)

    def test_queue_info_nce_by_hand(self):
        # cos is 1 to the positive and 0 to the one negative: log(1 + e^-1).
        value = functional.queue_info_nce(
            on_circle(0), on_circle(0), on_circle(90, 5), torch.tensor([[True, False]]), temperature=1.0
        )
        assert value.item() == pytest.approx(math.log(1 + math.exp(-1)), rel=1e-12)

    def test_queue_info_nce_with_the_other_positives_is_info_nce(self):
        queries, positives = rows(5), rows(5, seed=1)
        value = functional.queue_info_nce(
            queries, positives, positives, ~torch.eye(5).bool(), temperature=0.05
        )
        assert value.item() == pytest.approx(
            functional.info_nce(queries, positives, temperature=0.05).item(), rel=1e-12
        )

    @pytest.mark.parametrize("dtype", HALF, ids=str)
    def test_float32_and_finite(self, dtype):
        pseudo, sentence, tokens, matrices = (
            x if isinstance(x, dict) else (30 * x).to(dtype) for x in self.inputs()
        )
        sentence.requires_grad_()
        matrices = {name: matrix.to(dtype) for name, matrix in matrices.items()}
        mask = torch.zeros(3, 6, dtype=torch.long)  # nothing but padding is no NaN
        mask[0] = 1
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mapped = functional.pseudo_token_mapping(pseudo, sentence, tokens, mask, **matrices)
            loss = functional.queue_info_nce(mapped, mapped, mapped, ~torch.eye(3).bool(), temperature=0.05)
        assert mapped.dtype == torch.float32
        check_finite(loss, sentence)


class TestErrors:
    @pytest.mark.parametrize("temperature", [0, -0.05, math.nan, math.inf])
    def test_temperature(self, temperature):
        with pytest.raises(
            ValueError, match=rf"temperature must be a finite number above 0, got {temperature}"
        ):
            functional.info_nce(rows(2), rows(2), temperature=temperature)

    @pytest.mark.parametrize("margin_degrees", [-1, 180, 200, math.nan])
    def test_margin_degrees(self, margin_degrees):
        with pytest.raises(ValueError, match=f"margin_degrees .* got {margin_degrees}"):
            functional.arccon_loss(rows(2), rows(2), margin_degrees=margin_degrees)

    @pytest.mark.parametrize(
        "contrast",
        [
            functional.alignment,
            functional.arccon_loss,
            partial(functional.info_nce, temperature=0.05),
            partial(functional.nt_xent, temperature=0.1),
            lambda x, y: functional.order_triplet_loss(x, x, y),
        ],
    )
    @pytest.mark.parametrize("other", [(1, 8), (3, 8)])
    def test_rows_that_do_not_belong_together(self, contrast, other):
        with pytest.raises(ValueError, match=r"must have the same shape \(B, D\), got .* \(2, 8\)"):
            contrast(rows(2), rows(*other))

    def test_temperatures_of_similarity_distillation(self):
        keywords = {"temperature": 0.1, "teacher_temperature": 0.1}
        for name in keywords:
            with pytest.raises(ValueError, match="temperature must be a finite number above 0, got 0"):
                functional.similarity_distillation(rows(4), rows(4), **keywords | {name: 0})


@pytest.mark.parametrize("scale", [7, 1e6, 1e-6])
def test_length_of_the_vectors_does_not_count(scale):
    a, p = rows(4), rows(4, seed=1)
    assert functional.info_nce(3 * a, p / scale, temperature=0.1).item() == pytest.approx(
        functional.info_nce(a, p, temperature=0.1).item(), rel=1e-12
    )


def test_autocast_changes_nothing():
    a, p = rows(16, 384, dtype=torch.float32), rows(16, 384, 1, dtype=torch.float32)

    def values():
        return [
            functional.arccon_loss(a, p),
            functional.order_triplet_loss(a, p, -p),
            functional.uniformity(a),
            functional.nt_xent(a, p, temperature=0.05),
            functional.queue_info_nce(a, p, p, ~torch.eye(16).bool(), temperature=0.05),
            functional.similarity_distillation(a, p, temperature=0.1, teacher_temperature=0.05),
        ]

    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = values()
    assert all(torch.equal(x, y) and x.dtype == torch.float32 for x, y in zip(inside, values(), strict=True))


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_words_are_scored_in_float32(dtype):
    logits, row, word = (4 * rows(5, 30)).to(dtype), torch.tensor([0, 0, 4]), torch.tensor([1, 29, 0])
    value = functional.bag_of_words_loss(logits, row, word)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(
        functional.bag_of_words_loss(logits.double(), row, word).item(), rel=1e-6
    )


def test_a_zero_vector_stays_zero():
    zero, other = torch.zeros(1, 3), torch.ones(1, 3)
    assert functional.alignment(zero, other).item() == pytest.approx(1.0)
    assert functional.order_triplet_loss(zero, -other, other, margin=0.5).item() == pytest.approx(0.5)


def test_of_pseudo_tokens_and_encoder_the_finer_dtype():
    sentence, tokens, weight = torch.randn(2, 8), torch.randn(2, 3, 8), torch.randn(8, 8, dtype=torch.float64)
    value = functional.pseudo_token_mapping(
        weight, sentence, tokens, None, query=weight, key=weight, value=weight
    )
    assert value.dtype == torch.float64


@pytest.mark.parametrize(("other", "balance", "factor"), [(1.5, 0.5, 2 / 3), (3.0, 2.0, 1.0)])
def test_a_gradient_is_bounded_by_a_share_of_the_main_one(other, balance, factor):
    norms = torch.tensor(2.0), torch.tensor(other)
    assert functional.balance_factor(*norms, balance=balance).item() == pytest.approx(factor)
