"""The equations of the papers, as pure functions of tensors.

Letters in shapes: B batch, D embedding size, N negatives or tokens. Cosines, softmax and losses are computed
in float32 (in float64 for float64 input) and outside autocast, whatever the dtype of the input: cosines in
bfloat16 are inaccurate.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, ParamSpec

import torch
import torch.nn.functional as F
from torch import Tensor

_P = ParamSpec("_P")
__all__ = [
    "alignment",
    "arccon_loss",
    "bag_of_words_loss",
    "balance_factor",
    "decoding_signal",
    "gradient_reversal",
    "incomplete_sentence_loss",
    "info_nce",
    "nt_xent",
    "order_triplet_loss",
    "pseudo_token_mapping",
    "queue_info_nce",
    "similarity_distillation",
    "token_class_loss",
    "token_cross_entropy",
    "token_weights",
    "uniformity",
]


def _full_precision(function: Callable[_P, Tensor]) -> Callable[_P, Tensor]:
    """Let a function compute in float32, or in float64 if a tensor has it, and outside autocast."""

    @functools.wraps(function)
    def compute(*args: _P.args, **keywords: _P.kwargs) -> Tensor:
        values = [*args, *keywords.values()]
        tensors = [value for value in values if isinstance(value, Tensor)]
        is_double = any(tensor.dtype == torch.float64 for tensor in tensors)
        dtype = torch.float64 if is_double else torch.float32

        def cast(value: Any) -> Any:
            return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value

        with torch.autocast(tensors[0].device.type, enabled=False):
            return function(*map(cast, args), **{name: cast(value) for name, value in keywords.items()})

    return compute


def info_nce(
    anchors: Tensor, positives: Tensor, negatives: Tensor | None = None, *, temperature: float
) -> Tensor:
    r"""InfoNCE (NT-Xent) with in-batch negatives: ArcCSE eq. 1, SimCSE eq. 1, DenoSent eq. 5.

    .. math:: -\frac{1}{B}\sum_i \log\frac{e^{\cos(h_i, h_i^*)/\tau}}{\sum_j e^{\cos(h_i, h_j^*)/\tau}}

    The positive is part of the denominator (DenoSent prints it without), and :math:`j` runs over all
    positives and all ``negatives``. Equal to sentence-transformers' ``MultipleNegativesRankingLoss`` with
    ``scale = 1 / temperature``.

    Args:
        anchors: (B, D), of any length, normalised here.
        positives: (B, D), row i belongs to anchor i.
        negatives: (N, D), negatives of every anchor, or None.
        temperature: :math:`\tau`, above 0.

    Returns:
        The mean over anchors, a scalar. With B = 1 and no negatives it is 0, with a gradient of 0.

    Raises:
        ValueError: If anchors and positives differ in shape, or the temperature is not above 0.
    """
    return arccon_loss(anchors, positives, negatives, margin_degrees=0.0, temperature=temperature)


@_full_precision
def arccon_loss(
    anchors: Tensor,
    positives: Tensor,
    negatives: Tensor | None = None,
    *,
    margin_degrees: float = 10.0,
    temperature: float = 0.05,
) -> Tensor:
    r"""Additive angular margin contrastive loss, ArcCon: ArcCSE eq. 3.

    .. math::
        -\frac{1}{B}\sum_i \log\frac{e^{\cos(\theta_{ii^*} + m)/\tau}}
        {e^{\cos(\theta_{ii^*} + m)/\tau} + \sum_{j \ne i} e^{\cos(\theta_{ij^*})/\tau}}

    The margin is added to the angle of the positive pair only. With ``margin_degrees=0`` this equals
    :func:`info_nce` to the last bit. Where the angle and the margin exceed 180 degrees, eq. 3 is taken
    literally: the cosine rises again.

    Args:
        anchors: (B, D), of any length, normalised here.
        positives: (B, D), row i belongs to anchor i.
        negatives: (N, D), negatives of every anchor, or None.
        margin_degrees: :math:`m`, in [0, 180).
        temperature: :math:`\tau`, above 0.

    Returns:
        The mean over anchors, a scalar. Gradients are finite at every angle, including 0 and 180 degrees.

    Raises:
        ValueError: If anchors and positives differ in shape, or margin or temperature are out of range.
    """
    _check_rows(anchors=anchors, positives=positives)
    _check_temperature(temperature)
    if not 0 <= margin_degrees < 180:
        raise ValueError(f"margin_degrees must be an angle in [0, 180), got {margin_degrees}.")
    anchors, positives = _unit(anchors), _unit(positives)
    candidates = positives if negatives is None else torch.cat([positives, _unit(negatives)])
    cosines = anchors @ candidates.T  # (B, B + N)
    target = torch.arange(len(anchors), device=anchors.device)
    if margin_degrees:
        diagonal = cosines[target, target]
        cosines = cosines.index_put((target, target), _shift_angle(diagonal, math.radians(margin_degrees)))
    return F.cross_entropy(cosines / temperature, target)


@_full_precision
def order_triplet_loss(anchors: Tensor, near: Tensor, far: Tensor, *, margin: float = 0.0) -> Tensor:
    r"""Partial order of similarity, ArcCSE eq. 4: ``near`` should be closer to its anchor than ``far``.

    .. math:: \frac{1}{B}\sum_i \max(0, \cos(h_i, h_i'') - \cos(h_i, h_i') + m)

    Args:
        anchors: (B, D), of any length, normalised here.
        near: (B, D), :math:`h'`.
        far: (B, D), :math:`h''`.
        margin: :math:`m`, a difference of cosines.

    Returns:
        The mean over triplets, a scalar; 0 for B = 0. The paper's eq. 4 is for one triplet.

    Raises:
        ValueError: If the three shapes are not equal (B, D).
    """
    _check_rows(anchors=anchors, near=near, far=far)
    anchors, near, far = _unit(anchors), _unit(near), _unit(far)
    violations = (anchors * (far - near)).sum(dim=1) + margin  # (B,)
    return F.relu(violations).sum() / max(len(violations), 1)


@_full_precision
def decoding_signal(
    sentence: Tensor,
    masked: Tensor,
    *,
    difference_scale: float = 10.0,
    product_scale: float = 10.0,
    signed: bool = False,
) -> Tensor:
    r"""The four memory vectors of PaSeR's decoder: PaSeR eq. 2 and 6.

    .. math:: [E_s,\ E_{\tilde s},\ m\,|E_s - E_{\tilde s}|,\ n\,|E_s * E_{\tilde s}|]

    Args:
        sentence: (B, D), :math:`E_s`, as the encoder returns it, not normalised.
        masked: (B, D), :math:`E_{\tilde s}`, of the sentence with the phrase masked.
        difference_scale: :math:`m`.
        product_scale: :math:`n`.
        signed: Keeps the sign of difference and product, as in the official code.

    Returns:
        (B, 4, D) in the order of the equation.
    """
    difference, product = sentence - masked, sentence * masked
    if not signed:
        difference, product = difference.abs(), product.abs()
    return torch.stack([sentence, masked, difference_scale * difference, product_scale * product], dim=1)


@_full_precision
def token_cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""Mean negative log-likelihood of tokens: PaSeR eq. 3 and its masked language model, DenoSent eq. 4.

    .. math:: -\frac{\sum_i w_i \log P(t_i)}{\sum_i w_i}

    The papers' equations are unweighted sums. Here it is a mean over all tokens of a batch, with weights
    such as :func:`token_weights`.

    Args:
        logits: (N, V), at the scored positions only.
        targets: (N,), ids.
        weights: (N,), :math:`w`, above 0, or None for 1.

    Returns:
        A scalar; 0 for N = 0, connected to the graph.
    """
    return _weighted_mean(F.cross_entropy(logits, targets, reduction="none"), weights)


@_full_precision
def bag_of_words_loss(logits: Tensor, rows: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""Mean negative log-likelihood of the words of texts, predicted from one vector per text.

    .. math::
        -\frac{1}{\sum_{i,j} w_{ij}} \sum_i \sum_{j \in s_i} w_{ij}
        \log \frac{e^{u_{i, t_{ij}}}}{\sum_{c \in C} e^{u_{ic}}}

    The prediction is the same at each place of the text. :math:`C` are the candidates, the distinct tokens
    of the batch.

    Args:
        logits: (B, C), :math:`u`, the score of each candidate for each text.
        rows: (N,), the index of a token's text.
        targets: (N,), the index of its candidate.
        weights: (N,), :math:`w`, above 0, or None for 1.

    Returns:
        A scalar; 0 for N = 0, connected to the graph.
    """
    return _weighted_mean(-F.log_softmax(logits, dim=1)[rows, targets], weights)


def _weighted_mean(losses: Tensor, weights: Tensor | None) -> Tensor:
    if weights is None:
        return losses.sum() / max(len(losses), 1)
    weights = weights.to(losses.dtype)
    return (weights * losses).sum() / weights.sum().clamp(min=torch.finfo(losses.dtype).tiny)


@_full_precision
def token_weights(probabilities: Tensor, *, threshold: float) -> Tensor:
    r"""Weights of tokens as targets: frequent tokens, which carry little information, count less.

    .. math:: w = \min\left(1, \sqrt{t / p}\right)

    word2vec keeps a word of frequency :math:`p` with this probability (Mikolov et al., 2013, eq. 5); here it
    is a weight.

    Args:
        probabilities: :math:`p`, shares of running text, of any shape. A share of 0 has weight 1.
        threshold: :math:`t`, in (0, 1]: tokens rarer than this have weight 1.

    Returns:
        Weights in (0, 1], in the shape of ``probabilities``.

    Raises:
        ValueError: If ``threshold`` is out of range.
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"The threshold of token weights must be in (0, 1], got {threshold}.")
    return (threshold / probabilities.clamp(min=threshold)).sqrt()


@_full_precision
def idf(counts: Tensor, total: int) -> Tensor:
    r"""Inverse document frequency, as in BM25 (Robertson and Zaragoza, 2009), but never below 0.001.

    .. math:: \log\left(1 + \frac{N - n + 0.5}{n + 0.5}\right)

    Args:
        counts: :math:`n`, numbers of documents that contain a word piece, of any shape.
        total: :math:`N`, the number of documents.

    Returns:
        Values of at least 0.001, in the shape of ``counts``.
    """
    return torch.log1p((total - counts + 0.5) / (counts + 0.5)).clamp(min=1e-3)


def balance_factor(main: Tensor, other: Tensor, *, balance: float) -> Tensor:
    r"""Factor that limits the gradient of a further objective relative to the main one's.

    .. math:: \min\left(1, \rho\, \frac{\lVert g_{main} \rVert}{\lVert g_{other} \rVert}\right)

    Args:
        main: Norm of the main objective's gradient, of any shape.
        other: Norm of the other objective's gradient at the same tensors.
        balance: :math:`\rho`, above 0, the largest ratio of the two norms.

    Returns:
        Factors in [0, 1], in the shape of the norms; 1 where ``other`` is 0.
    """
    limit = balance * main
    return torch.where(other > limit, limit / other.clamp(min=torch.finfo(other.dtype).tiny), 1.0)


@_full_precision
def pseudo_token_mapping(
    pseudo_tokens: Tensor,
    sentence: Tensor,
    tokens: Tensor,
    mask: Tensor | None,
    *,
    query: Tensor,
    key: Tensor,
    value: Tensor,
) -> Tensor:
    r"""Map sentences onto pseudo tokens and back by one attention layer: PT-BERT eq. 1 to 3.

    .. math::
        Z = \mathrm{softmax}\left(\frac{(P W^Q)(Y W^K)^T}{\sqrt{D}}\right) Y W^V,\quad
        h = \mathrm{softmax}\left(\frac{(y W^Q)(Z W^K)^T}{\sqrt{D}}\right) Z W^V

    The products are computed in another order, which gives the same result: the matrices are applied to the P
    pseudo tokens and the B sentences, and not to B L tokens or B P rows of :math:`Z`.

    Args:
        pseudo_tokens: (P, D), :math:`P`.
        sentence: (B, D), :math:`y`, the query of the second attention.
        tokens: (B, L, D), :math:`Y`, the keys of the first attention.
        mask: (B, L), true (or 1) at tokens that are not padding; None without padding.
        query: (D, D), :math:`W^Q`.
        key: (D, D), :math:`W^K`.
        value: (D, D), :math:`W^V`.

    Returns:
        (B, D), :math:`h`.
    """
    root = math.sqrt(tokens.shape[2])
    scores = (pseudo_tokens @ query @ key.T) @ tokens.transpose(1, 2) / root  # (B, P, L)
    if mask is not None:
        scores = scores.masked_fill(~mask.bool().unsqueeze(1), torch.finfo(scores.dtype).min)
    forth = scores.softmax(dim=2)
    reader = (sentence @ query @ key.T @ value.T).unsqueeze(2)  # (B, D, 1)
    back = (forth @ (tokens @ reader) / root).softmax(dim=1)  # (B, P, 1)
    share = back.transpose(1, 2) @ forth  # (B, 1, L)
    return (share @ tokens).squeeze(1) @ value @ value


@_full_precision
def queue_info_nce(
    queries: Tensor, positives: Tensor, queue: Tensor, is_negative: Tensor, *, temperature: float
) -> Tensor:
    r"""InfoNCE against a queue: PT-BERT eq. 4.

    .. math::
        -\frac{1}{B}\sum_i \log\frac{e^{\cos(h_i, k_i)/\tau}}
        {e^{\cos(h_i, k_i)/\tau} + \sum_{j \in N_i} e^{\cos(h_i, q_j)/\tau}}

    Args:
        queries: (B, D), of any length, normalised here.
        positives: (B, D), row i belongs to query i.
        queue: (Q, D).
        is_negative: (B, Q) bool, :math:`N_i`: neither the row's own key nor an empty slot.
        temperature: :math:`\tau`, above 0.

    Returns:
        The mean over queries, a scalar; 0 if no row is a negative.

    Raises:
        ValueError: If queries and positives differ in shape, or the temperature is not above 0.
    """
    _check_rows(queries=queries, positives=positives)
    _check_temperature(temperature)
    queries, positives, queue = _unit(queries), _unit(positives), _unit(queue)
    own = (queries * positives).sum(dim=1, keepdim=True)  # (B, 1)
    others = (queries @ queue.T).masked_fill(~is_negative, -math.inf)  # (B, Q)
    target = torch.zeros(len(queries), dtype=torch.long, device=queries.device)
    return F.cross_entropy(torch.cat([own, others], dim=1) / temperature, target)


class _GradientReversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, strength: float) -> Tensor:
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return -ctx.strength * gradient, None


def gradient_reversal(x: Tensor, *, strength: float = 1.0) -> Tensor:
    r"""Identity with a reversed gradient: SLT-FAI section 3.2, Ganin and Lempitsky (2015).

    The gradient is :math:`-s` times the one that arrives. The layers before it therefore maximise the loss
    that the layers after it minimise: the min and max of SLT-FAI eq. 3 in one backward pass.

    Args:
        x: Of any shape and dtype.
        strength: :math:`s`, at least 0. 0 stops the gradient.

    Returns:
        ``x``, unchanged.
    """
    return _GradientReversal.apply(x, strength)


@_full_precision
def token_class_loss(logits: Tensor, targets: Tensor, counted: Tensor) -> Tensor:
    r"""Cross entropy of token classes, a mean over tokens, then over sentences: SLT-FAI eq. 4.

    .. math:: \frac{1}{N}\sum_i \frac{1}{|s_i|} \sum_{j \in s_i} \ell_{CE}(p_{ij}, y_{ij})

    Args:
        logits: (B, L, C)
        targets: (B, L), class numbers.
        counted: (B, L) bool, the sentence's own tokens. Other tokens have no influence.

    Returns:
        A scalar. Sentences without a counted token are left out; without any sentence it is 0.
    """
    logits = logits.masked_fill(~counted.unsqueeze(2), 0.0)
    losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)
    lengths = counted.sum(dim=1)
    means = losses.where(counted, 0.0).sum(dim=1) / lengths.clamp(min=1)  # (B,)
    return means.sum() / (lengths > 0).sum().clamp(min=1)


@_full_precision
def incomplete_sentence_loss(original: Tensor, incomplete: Tensor, usable: Tensor) -> Tensor:
    r"""Cross entropy of original (class 0) and incomplete sentences (class 1): SLT-FAI eq. 6.

    .. math:: \frac{1}{N}\sum_i \ell_{CE}(\hat{p_i}, 1) + \ell_{CE}(p_i, 0)

    Args:
        original: (B, 2), logits :math:`p_i`.
        incomplete: (B, 2), logits :math:`\hat{p_i}` of the same sentences with tokens masked.
        usable: (B,) bool, the pairs that differ. Others would belong to both classes.

    Returns:
        The sum of the two cross entropies, as a mean over usable pairs; 0 without any.
    """
    # Other pairs are set to 0 before the softmax: a NaN among them would otherwise reach the gradient.
    whole, lacking = (logits.where(usable[:, None], 0.0) for logits in (original, incomplete))
    log_likelihood = F.log_softmax(whole, dim=1)[:, 0] + F.log_softmax(lacking, dim=1)[:, 1]
    return -log_likelihood.where(usable, 0.0).sum() / usable.sum().clamp(min=1)


@_full_precision
def nt_xent(first: Tensor, second: Tensor, *, temperature: float) -> Tensor:
    r"""NT-Xent over both views of a batch: ConSERT eq. 1, SLT-FAI eq. 9.

    .. math::
        -\frac{1}{2B}\sum_i \log\frac{e^{\cos(r_i, r_{i^*})/\tau}}{\sum_{k \ne i} e^{\cos(r_i, r_k)/\tau}}

    :math:`r` are the 2B views. The other view of the same sentence is the positive, and the 2B - 2 views of
    the other sentences are negatives. SLT-FAI prints eq. 9 for the first views alone and without the positive
    in the denominator; here both are included, as in ConSERT.

    Args:
        first: (B, D), of any length, normalised here.
        second: (B, D), row i belongs to row i of ``first``.
        temperature: :math:`\tau`, above 0.

    Returns:
        The mean over the 2B views, a scalar. With B = 1 it is 0, with a gradient of 0.

    Raises:
        ValueError: If the two views differ in shape, or the temperature is not above 0.
    """
    _check_rows(first=first, second=second)
    _check_temperature(temperature)
    views = torch.cat([_unit(first), _unit(second)])  # (2B, D)
    itself = torch.eye(len(views), dtype=torch.bool, device=views.device)
    cosines = (views @ views.T).masked_fill(itself, -math.inf)
    target = torch.arange(len(views), device=views.device).roll(len(first))
    return F.cross_entropy(cosines / temperature, target)


@_full_precision
def listwise_distillation(student: Tensor, teacher: Tensor, *, temperature: float) -> Tensor:
    r"""Cross-entropy between a teacher's and a student's shares of the entries of a list: ListNet.

    .. math::
        -\frac{1}{B}\sum_i\sum_j p_{ij} \log q_{ij},\quad
        p_i = \mathrm{softmax}(t_i),\quad q_i = \mathrm{softmax}(s_i / \tau)

    It is the loss of Cao et al. (ICML 2007) for the probability of each entry to be the first.

    Args:
        student: (B, M), :math:`s`, for instance cosines.
        teacher: (B, M), :math:`t`. Entries of minus infinity do not belong to the list of their row. No
            gradient reaches it.
        temperature: :math:`\tau`, above 0.

    Returns:
        The mean over rows, a scalar.

    Raises:
        ValueError: If the temperature is not above 0.
    """
    _check_temperature(temperature)
    own = (student / temperature).masked_fill(teacher == -math.inf, torch.finfo(student.dtype).min)
    return F.cross_entropy(own, teacher.detach().softmax(dim=1).to(own.dtype))


@_full_precision
def similarity_distillation(
    student: Tensor, teacher: Tensor, *, temperature: float, teacher_temperature: float
) -> Tensor:
    r"""Listwise distillation of similarities within a batch: RankCSE's ListNet term (Liu et al., ACL 2023).

    .. math::
        -\frac{1}{B}\sum_i\sum_{j \ne i} p_{ij} \log q_{ij},\quad
        p_{ij} = \mathrm{softmax}_j\left(\frac{\cos(t_i, t_j)}{\tau_t}\right),\quad
        q_{ij} = \mathrm{softmax}_j\left(\frac{\cos(z_i, z_j)}{\tau}\right)

    It is :func:`listwise_distillation` of cosines without the diagonal.

    Args:
        student: (B, D), :math:`z`, of any length, normalised here.
        teacher: (B, T), :math:`t`, row i belongs to row i of ``student``. No gradient reaches it.
        temperature: :math:`\tau`, above 0.
        teacher_temperature: :math:`\tau_t`, above 0.

    Returns:
        The mean over rows, a scalar; 0 for B below 3, because a single other row has no order.

    Raises:
        ValueError: If a temperature is not above 0.
    """
    _check_temperature(teacher_temperature)
    if len(student) < 3:
        return student.sum() * 0.0
    student, teacher = _unit(student), _unit(teacher.detach())
    target = teacher @ teacher.T / teacher_temperature
    target = target.masked_fill(torch.eye(len(target), device=target.device) > 0, -math.inf)
    return listwise_distillation(student @ student.T, target, temperature=temperature)


@_full_precision
def alignment(x: Tensor, y: Tensor, *, alpha: float = 2.0) -> Tensor:
    r"""Mean distance of positive pairs on the unit sphere: ArcCSE eq. 6, Wang and Isola (2020).

    .. math:: \frac{1}{B}\sum_i \lVert x_i - y_i \rVert_2^\alpha

    Args:
        x: (B, D), of any length, normalised here.
        y: (B, D), row i belongs to row i of ``x``.
        alpha: The exponent, above 0.

    Returns:
        A scalar, lower is better; in [0, 4] for ``alpha=2``.

    Raises:
        ValueError: If ``x`` and ``y`` differ in shape.
    """
    _check_rows(x=x, y=y)
    distances = (_unit(x) - _unit(y)).norm(dim=1)
    # A power below 1 has an infinite gradient at 0, for a pair of equal vectors.
    return distances.clamp_min(torch.finfo(distances.dtype).tiny).pow(alpha).mean()


@_full_precision
def uniformity(x: Tensor, *, t: float = 2.0) -> Tensor:
    r"""Log of the mean Gaussian potential of all pairs: ArcCSE eq. 7, Wang and Isola (2020).

    .. math:: \log \frac{2}{B(B-1)}\sum_{i<j} e^{-t \lVert x_i - x_j \rVert_2^2}

    Args:
        x: (B, D) with B at least 2, of any length, normalised here.
        t: Inverse width of the potential.

    Returns:
        A scalar, lower is more uniform.
    """
    unit = _unit(x)
    cosines = (unit @ unit.T).fill_diagonal_(-math.inf)  # a squared distance is 2 - 2 cos
    pairs = len(unit) * (len(unit) - 1)
    return torch.logsumexp(2 * t * (cosines - 1).flatten(), dim=0) - math.log(pairs)


def _check_temperature(temperature: Any) -> None:
    """Raise ``ValueError`` unless a temperature is a finite number above 0."""
    if isinstance(temperature, str) or not 0 < temperature < math.inf:
        raise ValueError(f"temperature must be a finite number above 0, got {temperature!r}.")


def check_balance(balance: float | None) -> None:
    """Raise ``ValueError`` unless a limit between gradients is a finite number above 0 or None."""
    if balance is not None and not 0 < balance < math.inf:
        raise ValueError(f"balance must be a finite number above 0 or None, got {balance}.")


def check_weights(**weights: float) -> None:
    """Raise ``ValueError`` for a negative weight of a term, which would train the opposite."""
    for name, weight in weights.items():
        if not weight >= 0:
            raise ValueError(f"The weight {name} must be 0 or greater, got {weight}.")


def check_share(name: str, value: float) -> None:
    """Raise ``ValueError`` unless a share is in (0, 1)."""
    if not 0 < value < 1:
        raise ValueError(f"{name} must be in (0, 1), got {value}.")


def _check_rows(**tensors: Tensor) -> None:
    """Raise ``ValueError`` unless the tensors have the same shape (B, D).

    torch would broadcast them, or take further rows for negatives.
    """
    if len({tensor.shape for tensor in tensors.values()}) > 1:
        got = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items())
        raise ValueError(f"{' and '.join(tensors)} must have the same shape (B, D), got {got}.")


def _unit(x: Tensor) -> Tensor:
    # A zero vector has no direction: it stays 0. F.normalize would multiply its gradient by 1e12, infinite in
    # float16.
    has_direction = (x != 0).any(dim=-1, keepdim=True)
    return F.normalize(torch.where(has_direction, x, 1.0), dim=-1) * has_direction


def _shift_angle(cosine: Tensor, radians: float) -> Tensor:
    """Compute cos(arccos(cosine) + radians) without arccos, whose gradient is infinite at 1 and -1."""
    squared_sine = (1 - cosine) * (1 + cosine)  # below 0 where rounding put the cosine beyond 1
    regular = squared_sine > 0
    # The inner where keeps sqrt's infinite gradient at 0 from turning into 0 * inf.
    sine = torch.where(regular, torch.where(regular, squared_sine, 1.0).sqrt(), 0.0)
    return cosine * math.cos(radians) - sine * math.sin(radians)
