"""A simulated device for machines without a GPU: its tensors are on the CPU, and it keeps the rules of a GPU.

It raises for operations on tensors of two devices, for ``numpy`` of its tensors, and for what Apple's GPUs
lack: float64 and ``pdist``. Its autocast changes the dtypes that CUDA's does. It notes each time that the CPU
must wait for the device. It is torch's device "sim" of the process that imports this file.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

import sbert_plugins

aten = torch.ops.aten

# For each wait the line of this package that caused it, or an empty text.
waits: list[str] = []

# For CUDA the index may be on the CPU.
_INDEXED = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default}
_ACROSS = {aten.copy_.default, aten._to_copy.default}
_WAITING = {
    *(aten._local_scalar_dense.default, aten.nonzero.default, aten.masked_select.default, aten.equal.default),
    *(aten._unique2.default, aten.unique_consecutive.default, aten.repeat_interleave.Tensor),
}

# From torch.amp's lists "CUDA Ops that can autocast to float16" and "to float32": those that a loss may use.
_LOWERED = "linear matmul mm bmm addmm baddbmm einsum scaled_dot_product_attention"
_RAISED = """layer_norm softmax log_softmax nll_loss nll_loss_nd cosine_similarity mse_loss logsumexp log exp
acos pow rsqrt norm linalg_vector_norm sum prod cumsum cdist dist binary_cross_entropy_with_logits softplus"""


class Module(_DummyBackendModule):
    """The functions that torch calls for a device."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def get_rng_state(self, device: torch.device) -> Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: Tensor, device: torch.device) -> None:
        torch.set_rng_state(state)


_setup_privateuseone_for_python_backend("sim", Module())


class SimulatedTensor(Tensor):
    """A tensor of the device. It holds one of the CPU."""

    def __new__(cls, inner: Tensor) -> SimulatedTensor:
        return Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=torch.device("sim:0"),
        )

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(operation, args, kwargs or {})

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        with torch.no_grad():
            copied: Tensor = SimulatedTensor(self.inner.clone())
        copied = torch.nn.Parameter(copied) if isinstance(self, torch.nn.Parameter) else copied
        return memo.setdefault(id(self), copied.requires_grad_(self.requires_grad))

    def __getitem__(self, index: Any) -> Tensor:
        return super().__getitem__(torch.tensor(index) if isinstance(index, list) else index)

    def numpy(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("numpy cannot read a tensor of a device")

    def tolist(self) -> Any:
        _wait()
        return self.inner.tolist()


def run(operation: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operation on the CPU whose tensors, or whose result, are on the device."""
    given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    ours = {id(x.inner): x for x in given if isinstance(x, SimulatedTensor)}
    others = [
        x for x in given if not isinstance(x, SimulatedTensor) and x.dim()
    ]  # a scalar may be on the CPU
    device = kwargs.pop("device", None)
    may_mix = operation in _ACROSS or (operation in _INDEXED and isinstance(args[0], SimulatedTensor))
    if ours and others and not may_mix:
        raise RuntimeError(f"{operation}: two devices, {[(str(x.device), tuple(x.shape)) for x in given]}")
    if operation is aten._pdist_forward.default or (
        kwargs.get("dtype") == torch.float64 and "cpu" not in str(device)
    ):
        raise NotImplementedError(f"{operation}, {kwargs}: not on this device")
    by_mask = operation in _INDEXED and any(x is not None and x.dtype == torch.bool for x in args[1])
    is_moved = operation in _ACROSS and (others or (device is not None and device.type == "cpu"))
    if operation in _WAITING or by_mask or is_moved:
        _wait()
    args, kwargs = tree_map(lambda x: x.inner if isinstance(x, SimulatedTensor) else x, (args, kwargs))
    result = operation(*args, **kwargs)
    if operation is aten.copy_.default:
        return ours.get(id(result), result)
    if device is not None and device.type == "cpu":
        return result
    # A tensor that was changed in place stays the same object.
    return tree_map(
        lambda x: ours[id(x)] if id(x) in ours else SimulatedTensor(x) if isinstance(x, Tensor) else x, result
    )


def _wait() -> None:
    root = str(Path(sbert_plugins.__file__).parent)
    called = [frame for frame in traceback.extract_stack() if frame.filename.startswith(root)]
    waits.append(f"{Path(called[-1].filename).name}: {called[-1].line}" if called else "")


def _autocast(operation: Any, dtype: torch.dtype | None) -> Any:
    def cast(x: Any) -> Any:
        is_cast = isinstance(x, SimulatedTensor) and x.is_floating_point() and x.dtype != torch.float64
        return x.to(dtype or torch.get_autocast_dtype("sim")) if is_cast else x

    def run_cast(*args: Any, **kwargs: Any) -> Any:
        key = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
        with torch._C._ExcludeDispatchKeyGuard(key):
            args, kwargs = tree_map(cast, (args, kwargs))
            return operation(*args, **kwargs)

    return run_cast


_everything, _aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
_everything.fallback(lambda operation, *args, **kwargs: run(operation, args, kwargs), "PrivateUse1")
_everything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")


def _each(names: str) -> Any:
    """Yield the name and the operation of each overload that does not write into its arguments."""
    for name in names.split():
        base, _, asked = name.partition(".")
        packet = getattr(aten, base)
        for overload in [asked] if asked else packet.overloads():
            if not overload.endswith("out"):
                yield (base if overload == "default" else f"{base}.{overload}"), getattr(packet, overload)


# Factories have no tensor on the device, so the fallback does not reach them.
for _name, _operation in _each("empty.memory_format arange randperm eye linspace"):
    _aten.impl(
        _name, lambda *args, operation=_operation, **kwargs: run(operation, args, kwargs), "PrivateUse1"
    )
for _names, _dtype in ((_LOWERED, None), (_RAISED, torch.float32)):
    for _name, _operation in _each(_names):
        _aten.impl(_name, _autocast(_operation, _dtype), "AutocastPrivateUse1")
