"""The one place that uses private names of PyTorch.

A private name (one that begins with an underscore, or that no page of the documentation promises)
may vanish in any release. So each is used by one small function here, and nowhere else; the rest of
the course calls that function. To add one:

1. write a function that gets the name with `take(owner, "name", …)`, never with a plain dot;
2. write beside it a small test on live tensors and mark it `@proves(the_function)`.

When a name is gone, the function raises HelperError naming it, and `broken()` lists it.
"""

from helpers.model.adapter.autograd import (
    Saved,
    forward_class,
    leaf_variable,
    next_sequence_number,
    output_metadata,
    saved_settings,
    saved_tensors,
    sequence_number,
    tensor_hooks,
)
from helpers.model.adapter.backends import (
    close_library,
    empty_on_private_device,
    make_python_device,
    scoped_library,
)
from helpers.model.adapter.dispatch import (
    Kernel,
    all_keys,
    find_operator,
    kernel_table,
    key_names,
    merged_keys,
    operator_full_name,
    operator_names,
    operator_schema,
    python_kernel,
    registrations,
    tensor_keys,
    thread_keys,
)
from helpers.model.adapter.dispatches import Seen, watch_dispatches
from helpers.model.adapter.libraries import custom_op_has_backward, custom_op_name
from helpers.model.adapter.machinery import SELF_TESTS, broken, proves, release, take
from helpers.model.adapter.registering import (
    at_end_of_backward,
    device_of_private_key,
    kernels_without_operator,
    passes_nothing,
    unwatched,
)
from helpers.model.adapter.storages import (
    base_of,
    is_view,
    same_storage,
    storage_key,
    storage_use_count,
    unwrapped,
    version_of,
    weak_storage,
)
from helpers.model.adapter.watching import (
    EventTensor,
    dispatch_mode,
    event_tensors,
    freed_allocation,
    operator_arguments,
    operator_name,
    plain_access,
    profiled_events,
    profiler_label,
    profiler_running,
    quiet_profiler,
)

__all__ = [
    "SELF_TESTS",
    "EventTensor",
    "Kernel",
    "Saved",
    "Seen",
    "all_keys",
    "at_end_of_backward",
    "base_of",
    "broken",
    "close_library",
    "custom_op_has_backward",
    "custom_op_name",
    "device_of_private_key",
    "dispatch_mode",
    "empty_on_private_device",
    "event_tensors",
    "find_operator",
    "forward_class",
    "freed_allocation",
    "is_view",
    "kernel_table",
    "kernels_without_operator",
    "key_names",
    "leaf_variable",
    "make_python_device",
    "merged_keys",
    "next_sequence_number",
    "operator_arguments",
    "operator_full_name",
    "operator_name",
    "operator_names",
    "operator_schema",
    "output_metadata",
    "passes_nothing",
    "plain_access",
    "profiled_events",
    "profiler_label",
    "profiler_running",
    "proves",
    "python_kernel",
    "quiet_profiler",
    "registrations",
    "release",
    "same_storage",
    "saved_settings",
    "saved_tensors",
    "scoped_library",
    "sequence_number",
    "storage_key",
    "storage_use_count",
    "take",
    "tensor_hooks",
    "tensor_keys",
    "thread_keys",
    "unwatched",
    "unwrapped",
    "version_of",
    "watch_dispatches",
    "weak_storage",
]
