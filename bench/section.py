"""Sections: contenders, how a row is read from an object, and the table of medians and ratios."""
import statistics
import sys

from contenders import Failed, Missing


class Section:
    """`contenders`: name -> function; `ratios`: pairs of names to compare; `rows`: (row label, number) of each object a
    contender gives; `better`: "less" or "more"; `means`: (a pair, the least size) whose ratios' geometric mean is told,
    of rows that are sizes; `remarks`: lines that are told of the section when it has been measured."""

    def __init__(self, key, name, unit, better, contenders, ratios, rows, means=(), remarks=lambda section: []):
        self.key, self.name, self.unit, self.better = key, name, unit, better
        self.contenders, self.ratios, self.rows, self.means = contenders, ratios, rows, means
        self.remarks = remarks
        self.values, self.notes, self.objects = {}, {}, []

    def measure(self, rounds):
        for number in range(rounds):
            for name, function in self.contenders.items():
                if name in self.notes:  # missing or failed: not again
                    continue
                if sys.stderr.isatty():
                    print(f"\r{self.name}: round {number + 1}/{rounds}, {name}\033[K", end="", file=sys.stderr,
                          flush=True)
                self.one(name, function, number)
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)

    def one(self, name, function, number):
        try:
            for found in function():
                self.objects.append(dict(found, contender=name, round=number))
                for row, value in self.rows(found):
                    self.values.setdefault(row, {}).setdefault(name, []).append(value)
        except Missing as reason:
            self.notes[name] = f"not measured: {reason}"
        except Failed as reason:
            self.notes[name] = f"FAILED: {reason}"

    def median(self, row, name):
        values = self.values.get(row, {}).get(name)
        return statistics.median(values) if values else None

    def table(self):
        """Markdown: a row for each size or model, a column for each contender, then the ratios."""
        head = [f"{self.name}, {self.unit}", *self.contenders, *(f"{ours} : {theirs}" for ours, theirs in self.ratios)]
        lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
        for row in self.values:
            cells = [number(self.median(row, name)) for name in self.contenders]
            cells += [ratio(self.median(row, ours), self.median(row, theirs), self.better) for ours,
                      theirs in self.ratios]
            lines.append("| " + " | ".join([row, *cells]) + " |")
        return lines + self.mean_lines() + [f"{name}: {note}" for name, note in self.notes.items()]

    def mean_lines(self):
        lines = []
        for ours, theirs, least in self.means:
            rows = [row for row in self.values if size_of(row) >= least]
            times = [times_better(self.median(row, ours), self.median(row, theirs), self.better) for row in rows]
            if rows and all(times):
                lines.append(f"geometric mean, {rows[0]} to {rows[-1]}: {ours} : {theirs} "
                             f"{statistics.geometric_mean(times):.2f} x; "
                             f"least {min(times):.2f} x, at {rows[times.index(min(times))]}")
        lines += self.remarks(self)
        return [""] + lines if lines else []


def number(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def times_better(ours, theirs, better):
    """Above 1 ours wins, whether less or more is better."""
    if ours is None or theirs is None:
        return None
    return theirs / ours if better == "less" else ours / theirs


def ratio(ours, theirs, better):
    times = times_better(ours, theirs, better)
    return "-" if times is None else f"{times:.0f} x" if times >= 10 else f"{times:.2f} x"


UNITS = (("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))


def size_label(size):
    return next(f"{size // scale} {unit}" for unit, scale in UNITS if size >= scale)


def size_of(label):
    count, unit = label.split()
    return int(count) * dict(UNITS)[unit]
