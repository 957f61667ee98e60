"""`show_kernel`: the source of a kernel where it is Python, and a plain sentence where it is compiled."""

import pytest
import torch

from helpers import show_kernel
from helpers.model.finding import HelperError


def test_a_python_kernel_for_meta_is_shown_and_is_the_one_that_runs():
    shown = show_kernel("index_select", "Meta")
    assert (shown.operator, shown.key, shown.kind) == ("aten::index_select", "Meta", "kernel")
    assert shown.file == "_meta_registrations.py"
    assert "def meta_index_select(self, dim, index):" in shown.code
    assert repr(shown).startswith(shown.sentence)
    assert repr(shown).endswith(shown.code)
    assert "<pre" in shown._repr_html_()


@pytest.mark.parametrize("key", ["CPU", "AutogradCPU"])
def test_a_compiled_kernel_is_said_to_be_one(key):
    shown = show_kernel(torch.ops.aten.mm.default, key)
    assert shown.code == ""
    assert shown.sentence.endswith("compiled; its source is not in your installation.")
    assert repr(shown) == shown.sentence
    assert "<pre" not in shown._repr_html_()


def test_the_kind_is_that_of_the_dispatcher():
    assert show_kernel("linear", "CPU").kind == "math kernel"
    assert show_kernel("mm", "AutogradCPU").kind == "autograd kernel"


def test_a_key_may_be_given_as_torch_has_it():
    assert show_kernel("mm", torch._C.DispatchKey.CPU) == show_kernel("mm", "CPU")


def test_a_custom_operator_is_not_called_compiled():
    @torch.library.custom_op("course_show_kernel::same", mutates_args=())
    def same(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    assert show_kernel("course_show_kernel::same", "CPU").sentence.endswith(
        "Python; torch does not say which function it is."
    )


@pytest.mark.parametrize(
    ("operator", "key", "words"),
    [
        ("mm", "GPU", "there is no dispatch key 'GPU'; aten::mm has `CPU`"),
        ("mm", None, "there is no dispatch key None"),
        ("mm", "cpu", "there is no dispatch key 'cpu'; did you mean CPU?"),
        ("mm", "Autograd", "there is no dispatch key 'Autograd'; aten::mm has `CPU`, "),
        ("mm.", "CPU", "show_kernel"),
        ("mm", "ADInplaceOrView", "aten::mm has only a fallthrough at ADInplaceOrView"),
        ("cumsum", "SparseCPU", "aten::cumsum has no kernel at SparseCPU; it has `CPU`"),
        ("no_such_operator", "CPU", "show_kernel"),
        (3, "CPU", "show_kernel"),
    ],
)
def test_wrong_input_gets_one_sentence(operator, key, words):
    with pytest.raises(HelperError) as raised:
        show_kernel(operator, key)
    assert words in str(raised.value) or "no operator" in str(raised.value)
    assert "\n" not in str(raised.value)
