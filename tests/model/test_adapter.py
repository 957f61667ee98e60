"""Every private name of PyTorch is proved to work here, and used nowhere else."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest
import torch

from helpers.model import adapter
from helpers.model.finding import HelperError

ADAPTER = Path(inspect.getfile(adapter)).parent
HELPERS = ADAPTER.parents[1]
# Functions of the adapter that use no private name themselves.
MACHINERY = {"proves", "broken", "release", "take", "quiet_profiler"}


@pytest.mark.parametrize("name", adapter.SELF_TESTS)
def test_a_private_name_still_does_what_the_course_needs(name):
    assert adapter.SELF_TESTS[name]() is True


def test_every_function_of_the_adapter_has_a_self_test_and_a_docstring():
    functions = {
        name: function
        for name, function in inspect.getmembers(adapter, inspect.isfunction)
        if function.__module__.startswith(adapter.__name__) and not name.startswith("_")
    }
    assert set(functions) - MACHINERY == set(adapter.SELF_TESTS)
    for name, function in functions.items():
        assert function.__doc__, name


def test_nothing_is_broken_on_this_release():
    assert adapter.broken() == {}


def test_a_missing_name_gives_one_sentence_that_names_it(monkeypatch):
    monkeypatch.delattr("torch._C._storage_Use_Count")
    release = adapter.release()
    sentence = (
        f"this torch release ({release}) lacks torch._C._storage_Use_Count, a private name that this helper needs"
    )
    with pytest.raises(HelperError) as raised:
        adapter.storage_use_count(torch.ones(3))
    assert str(raised.value) == sentence
    assert adapter.broken() == {"storage_use_count": sentence}


def test_a_missing_attribute_of_a_tensor_gives_one_sentence():
    with pytest.raises(HelperError, match=r"lacks Tensor\._no_such_name, a private name that this helper needs"):
        adapter.take(torch.ones(3), "_no_such_name")


def test_a_name_that_changed_its_meaning_is_reported(monkeypatch):
    monkeypatch.setattr(torch._C, "_storage_Use_Count", lambda storage: 0)
    release = adapter.release()
    assert adapter.broken() == {
        "storage_use_count": f"storage_use_count gives a wrong answer on this torch release ({release})"
    }


def test_no_saved_tensor_is_read_where_a_release_hides_its_hooks(monkeypatch):
    hidden = type("SavedTensor", (), {"data": None})
    adapter.autograd._require_hooks_in_sight.cache_clear()
    monkeypatch.setattr(torch._C._autograd, "SavedTensor", hidden)
    with pytest.raises(HelperError, match=r"lacks torch\._C\._autograd\.SavedTensor\.unpack_hook"):
        list(adapter.saved_tensors(torch.ones(1, requires_grad=True).exp().grad_fn))


def test_release_is_two_numbers():
    assert adapter.release() == ".".join(torch.__version__.split(".")[:2])


def test_two_tensors_share_a_storage_even_where_they_read_no_common_slot():
    a = torch.zeros(4)
    assert adapter.same_storage(a[:2], a[2:])
    assert adapter.same_storage(a, a.detach())
    assert not adapter.same_storage(a, a.clone())
    empty = torch.zeros(0)
    assert not adapter.same_storage(empty, torch.zeros(0))
    assert empty.data_ptr() == torch.zeros(0).data_ptr() == 0


def test_the_owners_of_a_storage_are_counted():
    a = torch.zeros(4)
    assert adapter.storage_use_count(a) == 1
    others = [a[1:], a.detach()]
    assert adapter.storage_use_count(a) == 3
    held = a.untyped_storage()
    assert adapter.storage_use_count(a) == 3
    del others, held
    assert adapter.storage_use_count(a) == 1


def test_views_and_versions_are_read_as_autograd_keeps_them():
    a = torch.zeros(2, 3)
    row = a.t()[1]
    assert adapter.base_of(row) is a
    assert adapter.base_of(a) is None
    assert [adapter.is_view(t) for t in (row, a, a.detach(), a.data)] == [True, False, False, False]
    row.add_(1)
    row.add_(1)
    assert adapter.version_of(a) == adapter.version_of(row) == 2
    with torch.inference_mode():
        assert adapter.version_of(torch.zeros(2)) is None


# The scan: no other module of helpers/ uses a private name of torch

OWNERS = (
    torch,
    torch.Tensor,
    torch.UntypedStorage,
    torch.Generator,
    torch.autograd.Function,
    torch.nn.Module(),
    torch.nn.Parameter,
    torch.overrides,
    torch.fx.Node,
    type(torch.ops.aten.add),
    type(torch.ops.aten.add.Tensor),
)


def is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


TORCH_PRIVATE = {name for owner in OWNERS for name in dir(owner) if is_private(name)}


def private_uses(source: str) -> list[str]:
    """Return the private names of torch in a piece of Python, each with its line.

    Seen are `torch.…._name`, a private name of a tensor, storage or module on anything but `self`
    and `cls`, imports, and the same names as strings in getattr and its kin.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            root = node.value
            while isinstance(root, ast.Attribute | ast.Call):
                root = root.value if isinstance(root, ast.Attribute) else root.func
            root_name = root.id if isinstance(root, ast.Name) else ""
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if root_name == "torch" or (node.attr in TORCH_PRIVATE and not own):
                names = [node.attr]
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names if a.name.startswith("torch.") and "._" in a.name]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            names = [a.name for a in node.names if is_private(a.name) or "._" in node.module]
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
            "getattr",
            "hasattr",
            "setattr",
            "delattr",
        ):
            names = [a.value for a in node.args[1:2] if isinstance(a, ast.Constant) and a.value in TORCH_PRIVATE]
        found += [f"{name} (line {node.lineno})" for name in names]
    return found


@pytest.mark.parametrize(
    "path",
    [p for p in sorted(HELPERS.rglob("*.py")) if ADAPTER not in p.parents],
    ids=lambda p: p.relative_to(HELPERS).as_posix(),
)
def test_no_other_module_uses_a_private_name_of_torch(path):
    assert private_uses(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "torch._C._is_alias_of(a, b)",
        "t._base",
        "t.untyped_storage()._cdata",
        "model.layer._parameters",
        "torch.utils._python_dispatch",
        "import torch._dynamo",
        "from torch._subclasses import FakeTensorMode",
        "from torch.utils import _pytree",
        "from torch.utils._python_dispatch import TorchDispatchMode",
        "getattr(t, '_version')",
        "def f(self):\n    return self.tensor._is_view()",
    ],
)
def test_the_scan_sees_a_private_name(source):
    assert len(private_uses(source)) >= 1


@pytest.mark.parametrize(
    "source",
    ["self._steps", "t.shape", "Drawing.__name__", "sys._getframe()", "getattr(t, name)", "getattr(t, '__iter__')"],
)
def test_the_scan_lets_other_names_pass(source):
    assert private_uses(source) == []
