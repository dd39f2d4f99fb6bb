"""Charts of bench results as plain SVG: lines over message sizes, bars for everything else. Readable on light and dark
pages."""
import html
import math

WIDTH, HEIGHT = 720, 380
LEFT, RIGHT, TOP, BOTTOM = 80, 170, 44, 48
# A contender has the same colour in every chart.
COLOURS = {"tutti": "#d1495b", "tutti symmetric": "#d1495b", "tutti plain": "#edae49", "limit": "#4c956c",
           "Open MPI": "#30638e", "Open MPI 5": "#30638e", "MPICH 5": "#4c956c",
           "Intel MPI": "#7768ae", "TCP alone": "#30638e",
           "sealed": "#d1495b", "plain": "#edae49", "tls": "#30638e", "GMAC alone": "#4c956c",
           "PyTorch": "#7768ae", "PyTorch gloo": "#7768ae"}
INK = "#888"


def text(x, y, words, anchor="start", colour=INK, size=12, weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="{size}" '
            f'font-weight="{weight}">{html.escape(words)}</text>')


def line(x1, y1, x2, y2, colour=INK, width=0.5):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>'


def page(title, body, height=HEIGHT):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">\n'
            + "\n".join([text(16, 24, title, size=15, weight="bold"), *body]) + "\n</svg>\n")


def decades(values):
    low, high = min(values), max(values)
    return range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)


def spread(wanted, gap):
    """Label positions as near as can be to `wanted`, at least `gap` apart."""
    placed = []
    for y in wanted:
        placed.append(max(y, placed[-1] + gap) if placed else y)
    return placed


def lines(section):
    """One line a contender over the rows, logarithmic upwards; names stand at the lines' ends."""
    rows = list(section.values)
    series = {name: [section.median(row, name) for row in rows] for name in section.contenders}
    series = {name: values for name, values in series.items() if any(values)}
    powers = decades([value for values in series.values() for value in values if value])
    low, span = powers[0], max(1, powers[-1] - powers[0])

    def x_of(index):
        return LEFT + index * (WIDTH - LEFT - RIGHT) / max(1, len(rows) - 1)

    def y_of(value):
        return HEIGHT - BOTTOM - (math.log10(value) - low) / span * (HEIGHT - TOP - BOTTOM)

    body = []
    for power in powers:
        y = y_of(10.0 ** power)
        body += [line(LEFT, y, WIDTH - RIGHT, y), text(LEFT - 8, y + 4, f"{10.0 ** power:g}", "end")]
    body += [text(x_of(i), HEIGHT - BOTTOM + 20, row, "middle") for i, row in enumerate(rows)]
    ends = []
    for name, values in series.items():
        colour = COLOURS.get(name, INK)
        points = [(x_of(i), y_of(value)) for i, value in enumerate(values) if value]
        body.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="'
                    + " ".join(f"{x:.1f},{y:.1f}" for x, y in points) + '"/>')
        ends.append((points[-1][1], name, colour))
    ends.sort()
    for (_, name, colour), y in zip(ends, spread([end[0] for end in ends], 15)):
        body.append(text(WIDTH - RIGHT + 8, y + 4, name, colour=colour))
    return page(f"{section.name}, {section.unit} ({section.better} is better)", body)


def number(value):
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def bars(section):
    """Horizontal bars, each row on a scale of its own."""
    body, y = [], 48
    names = list(section.contenders)
    for row in section.values:
        body.append(text(16, y + 12, row, weight="bold"))
        y += 20
        found = {name: section.median(row, name) for name in names}
        most = max(value for value in found.values() if value is not None)
        for name in names:
            if found[name] is None:
                continue
            colour = COLOURS.get(name, INK)
            width = max(1, found[name] / most * (WIDTH - 260))
            body += [text(120, y + 12, name, "end", colour),
                     f'<rect x="130" y="{y}" width="{width:.1f}" height="15" fill="{colour}"/>',
                     text(136 + width, y + 12, number(found[name]))]
            y += 19
        y += 10
    return page(f"{section.name}, {section.unit} ({section.better} is better)", body, y + 6)


def write(folder, sections):
    for section in sections:
        if not section.values:
            continue
        draw = lines if section.key.startswith("all_reduce") else bars
        (folder / f"{section.key}.svg").write_text(draw(section))
