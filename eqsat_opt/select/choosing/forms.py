"""Forms in the extraction problem: values as they are made, as they are read, and conversions.

For each class and form there are up to two classes of the problem: the value **made** in the form,
by a kernel that writes it so, and the value to be **read** in it, which was made in this form or
converted from another form in which it was made. So no conversion reads a converted value,
conversions form no cycles, and each is paid once, no matter how many kernels read its result.

Before that, forms that cannot be better are left out (`settled_forms`). Most kernels cost the same
in all forms, which otherwise makes the bounds of the extraction weak. Effects that a sum over
kernels cannot express are priced optimistically by other modules: calls that kernels of one session
share, views that are in conflict, kernels that run in parallel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from eqsat_opt.common.union_find import UnionFind
from eqsat_opt.extract.problem import FloatArray
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.values.forms import Form
from eqsat_opt.runtime.backends.protocol import Implementation, Offer
from eqsat_opt.select.tiling.candidates import CONSTANT, JOINT, Candidate, Selected

__all__ = [
    "Conversion",
    "ConvertedValue",
    "FormClasses",
    "MadeValue",
    "Placed",
    "Value",
    "Way",
    "form_classes",
    "settled_forms",
    "ways_of",
]

Value = tuple[int, Form | None]
"""A class in a form; ``None`` for a constant, which is packed beforehand into any."""

Row = Sequence[float] | FloatArray
"""Costs by metric."""


@dataclass(frozen=True, slots=True)
class Way:
    """The offers for a candidate that read and write the same forms.

    Attributes:
        reads: values that it reads.
        writes: form of its result.
        offers: numbers of the offers; empty for a candidate that runs nothing priced.
    """

    reads: tuple[Value, ...]
    writes: Form | None
    offers: tuple[int, ...] = ()

    def values(self, cls: int) -> Iterator[Value]:
        """Yield all values that have a form; ``cls`` is the class that is computed."""
        yield from (value for value in (*self.reads, (cls, self.writes)) if value[1] is not None)


@dataclass(frozen=True)
class Conversion:
    """A value that is read in another form than it was made in.

    Attributes:
        cls: the class.
        made, read: the forms.
        kernel: a copy from one form to the other.
        implementations: implementations of the kernel, each with the name of its backend.
    """

    cls: int
    made: Form
    read: Form
    kernel: Kernel
    implementations: tuple[tuple[str, Implementation], ...]

    @property
    def offers(self) -> tuple[Offer, ...]:
        """The offers for the conversion."""
        return tuple(Offer(self.kernel, name, how) for name, how in self.implementations)


@dataclass(frozen=True, slots=True)
class MadeValue:
    """A class that is computed in a form."""

    cls: int
    form: Form
    run: Selected


@dataclass(frozen=True, slots=True)
class ConvertedValue:
    """A class that is converted, by one implementation of a backend."""

    cls: int
    made: Form
    form: Form
    backend: str
    implementation: Implementation


Placed = tuple[MadeValue | ConvertedValue, ...]
"""Everything that runs, operands first.

A class may be made in several forms, each by a kernel of its own, where that is cheaper than a
conversion.
"""


def ways_of(
    item: Candidate,
    implementations: Sequence[Implementation],
    is_const: Callable[[int], bool],
    interface: Form,
    made: Mapping[int, Iterable[Form]],
) -> tuple[Way, ...]:
    """Return the offers for a candidate, grouped by the forms that they read and write.

    A candidate without a price, and offers that name no forms, read and write the form of the
    model's inputs and outputs. An offer that would leave the results of one kernel in different
    forms is left out.

    Args:
        item: the candidate.
        implementations: its implementations.
        is_const: whether a class is constant.
        interface: form of the model's inputs and outputs.
        made: forms of kernels with several results, by their pseudo-classes.
    """
    if item.kind in CONSTANT:
        return (Way(tuple((cls, None) for cls in item.reads), None),)
    if item.kind == "part":
        (whole,) = item.reads
        return tuple(Way(((whole, form),), form) for form in made[whole])

    def value(cls: int, form: Form) -> Value:
        return cls, None if is_const(cls) else form

    found: dict[tuple[tuple[Value, ...], Form], list[int]] = {}
    for number, how in enumerate(implementations):
        if len(set(how.writes)) > 1 and item.kind in JOINT:
            continue
        forms = how.reads or (interface,) * len(item.operands)
        operands = zip(item.operands, forms, strict=True)
        reads = tuple(dict.fromkeys(value(ref.cls, form) for ref, form in operands))
        found.setdefault((reads, how.writes[0] if how.writes else interface), []).append(number)
    if not implementations:
        reads = tuple(value(cls, interface) for cls in item.reads)
        return (Way(reads, interface),)
    return tuple(Way(reads, form, tuple(offers)) for (reads, form), offers in found.items())


def settled_forms(
    items: Iterable[tuple[int, Sequence[tuple[Way, Sequence[Row]]]]],
    demanded: Iterable[Value],
) -> dict[int, Form]:
    """Return the classes whose value is best made and read in a single form.

    Classes are linked by candidates that can run in several forms. Consider a component of linked
    classes for which all other candidates that read or make its values, and all demands, use a
    single form, and whose own candidates cost least in that form in every metric. Each solution can
    then be moved to that form at no extra cost: conversions within the component disappear, and if
    a class was made in two forms, the first is kept. That is exact for every objective that rises
    with the metrics, so not for a ratio.

    Args:
        items: for each candidate its class, and its ways with the costs of their offers.
        demanded: values that must exist in their form, whatever makes them.

    Returns:
        The form of each class in such components.
    """
    linked = UnionFind[int]()
    demands = list(demanded)
    free = []
    for cls, ways in items:
        values = [set(way.values(cls)) for way, _ in ways]
        fixed = set.intersection(*values) if values else set()
        demands += fixed
        values = [value - fixed for value in values]
        touched = {one for value in values for one, _ in value}
        if touched:
            linked.join(touched)
            free.append((touched, ways, values))
    wanted: dict[int, set[Form]] = defaultdict(set)
    members: dict[int, set[int]] = defaultdict(set)
    for cls, form in demands:
        if form is not None:
            wanted[linked.find(cls)].add(form)
            members[linked.find(cls)].add(cls)
    spoilt = set()
    for touched, ways, values in free:
        group = linked.find(min(touched))
        members[group] |= touched
        forms = wanted[group]
        if len(forms) != 1 or not _costs_least(ways, values, next(iter(forms))):
            spoilt.add(group)
    return {
        cls: next(iter(forms))
        for group, forms in wanted.items()
        if len(forms) == 1 and group not in spoilt
        for cls in members[group]
    }


def _costs_least(
    ways: Sequence[tuple[Way, Sequence[Row]]], values: Sequence[set[Value]], form: Form
) -> bool:
    """Return whether each offer has a rival in one form alone that costs no more in any metric."""
    pure = [
        row
        for (_, rows), touched in zip(ways, values, strict=True)
        if all(one == form for _, one in touched)
        for row in rows
    ]
    return all(
        any(all(a <= b for a, b in zip(row, other, strict=True)) for row in pure)
        for _, rows in ways
        for other in rows
    )


@dataclass(frozen=True)
class FormClasses:
    """The classes of a problem over forms.

    Attributes:
        count: number of classes.
        made: the class of a value as a kernel makes it.
        read: the class of a value as kernels read it.
        value_of: the value of each class, and whether it is only read in that form.
    """

    count: int
    made: Mapping[Value, int]
    read: Mapping[Value, int]
    value_of: Mapping[int, tuple[Value, bool]] = field(repr=False)


def form_classes(
    n_classes: int, made: Iterable[Value], read: Iterable[Value], converted: Iterable[Value]
) -> FormClasses:
    """Assign numbers to the classes; the first one for each e-class keeps its number.

    Args:
        n_classes: number of e-classes, pseudo-classes included.
        made: values that some candidate makes.
        read: values that some candidate reads.
        converted: results of conversions; only for these are the classes made and read different.
    """
    changed = set(converted)
    numbers: dict[tuple[Value, bool], int] = {}
    taken: set[int] = set()
    count = n_classes

    def number(value: Value, is_read: bool) -> int:
        nonlocal count
        key = (value, is_read and value in changed)
        if key not in numbers:
            if value[0] in taken:
                numbers[key], count = count, count + 1
            else:
                numbers[key] = value[0]
                taken.add(value[0])
        return numbers[key]

    read_numbers = {value: number(value, True) for value in sorted(set(read), key=_by_form)}
    made_numbers = {value: number(value, False) for value in sorted(set(made), key=_by_form)}
    value_of = {one: key for key, one in numbers.items()}
    return FormClasses(count, made_numbers, read_numbers, value_of)


def _by_form(value: Value) -> tuple[int, str]:
    return value[0], "" if value[1] is None else str(value[1])
