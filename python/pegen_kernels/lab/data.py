"""What is learned: data that packages ship, and data made for what a paper claims. A class is a row of SETS: its fields
are what a study's [data] may say, `make` draws the data of a seed.

Tokens are rows of numbers [n,N,F] or indices [n,N]; positions [N,P], or [n,N,P] where every sample has its own.
"""
from __future__ import annotations

import dataclasses
import gzip
import hashlib
import pathlib
from dataclasses import dataclass, field
from typing import Callable

import numpy
import torch
from torch import Tensor

from ..errors import ArgumentError


LATER = {"later": True}  # metadata of a setting that came when there were results already


@dataclass(frozen=True)
class Part:
    tokens: Tensor
    positions: Tensor
    targets: Tensor  # [n], or [n,N] of a class for every token; [n,2], shape and texture, of the measure "shape bias"
    measure: str = "accuracy"

    def __len__(self) -> int:
        return len(self.tokens)

    def to(self, device: str) -> Part:
        return Part(self.tokens.to(device), self.positions.to(device), self.targets.to(device), self.measure)


@dataclass(frozen=True)
class Data:
    axes: tuple[str, ...]  # what a position counts, in the order of its columns
    classes: int
    features: int  # columns of a token, or how many indices there are
    train: Part
    tests: dict[str, Part]  # the first one is like what is trained on
    causal: bool = False

    def to(self, device: str) -> Data:
        tests = {name: part.to(device) for name, part in self.tests.items()}
        return dataclasses.replace(self, train=self.train.to(device), tests=tests)

    def digest(self) -> str:
        """A digest of what is trained on and of all tests: equal data have an equal one on any machine."""
        found = hashlib.sha256()
        for part in (self.train, *self.tests.values()):
            for x in (part.tokens, part.positions, part.targets):
                found.update(x.cpu().numpy().tobytes())
        return found.hexdigest()[:16]


def grid_of(*sizes: int) -> Tensor:
    """[N,P]: tokens in row-major order, the first at 0."""
    return torch.cartesian_prod(*(torch.arange(float(size)) for size in sizes)).reshape(-1, len(sizes))


def patches(images: Tensor, side: int) -> Tensor:
    """[n,h,w] to [n,N,side^2]."""
    return torch.nn.functional.unfold(images[:, None], side, stride=side).mT.contiguous()


def _agree(condition: bool, message: str) -> None:
    if not condition:
        raise ArgumentError(f"[data]: {message}")


def _name(*sizes: int) -> str:
    return " x ".join(map(str, sizes))


@dataclass(frozen=True)
class Digits:
    """Handwritten digits of scikit-learn, 1797 images of 8 x 8; larger ones are the same, interpolated."""

    sizes: list[int] = field(default_factory=lambda: [8])  # of images: the first is trained on, all are tested
    patch: int = 1  # pixels along the side of a token
    interpolated: bool = False  # other sizes are tested with positions in the trained range, too
    offsets: list[float] = field(default_factory=list)  # tests where all positions have moved by so much
    shuffled: bool = False  # a test where tokens have changed places
    held_out: int = 597  # images that are tested and not trained on
    samples: int = field(default=1797, metadata=LATER)  # images that are trained on at most

    def make(self, seed: int) -> Data:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split

        _agree(bool(self.sizes) and all(s > 0 and s % self.patch == 0 for s in self.sizes),
               f"sizes {self.sizes} are no multiples of patch, {self.patch}")  # fmt: skip
        _agree(self.samples > 0, f"samples is {self.samples}; expected 1 or more")
        _agree(0 < self.held_out < 1700, f"held_out is {self.held_out}; expected 1 to 1699 of the 1797 images")
        images, targets = load_digits(return_X_y=True)
        given = train_test_split(images / 8 - 1, targets, test_size=self.held_out, stratify=targets, random_state=seed)
        train, test, of_train, of_test = (torch.from_numpy(x) for x in given)

        def part(images: Tensor, targets: Tensor, size: int, factor: float = 1.0, offset: float = 0.0) -> Part:
            images = images.float().reshape(-1, 1, 8, 8)
            if size != 8:
                images = torch.nn.functional.interpolate(images, (size, size), mode="bilinear", antialias=True)
            along = size // self.patch
            return Part(patches(images[:, 0], self.patch), grid_of(along, along) * factor + offset, targets)

        first = self.sizes[0]
        tests = {}
        for size in self.sizes:
            tests[_name(size, size)] = part(test, of_test, size)
            if self.interpolated and size != first:
                tests[f"{_name(size, size)}, interpolated"] = part(test, of_test, size, first / size)
        for offset in self.offsets:
            tests[f"moved by {offset:g}"] = part(test, of_test, first, offset=offset)
        if self.shuffled:
            plain = tests[_name(first, first)]
            order = torch.rand(plain.tokens.shape[:2], generator=torch.Generator().manual_seed(seed)).argsort(1)
            mixed = plain.tokens.gather(1, order[..., None].expand_as(plain.tokens))
            tests["shuffled"] = Part(mixed, plain.positions, plain.targets)
        few = slice(self.samples)
        return Data(("h", "w"), 10, self.patch**2, part(train[few], of_train[few], first), tests)


def _shapes(kind: Tensor, y: Tensor, x: Tensor, radius: Tensor) -> Tensor:
    """1 inside of a disc, square, triangle or cross of about the same area; kind [n], y and x [n,h,w] from its centre,
    in radii."""
    y, x = y / radius, x / radius
    thin = 0.38
    every = torch.stack([
        y * y + x * x < 1, (abs(y) < 0.88) & (abs(x) < 0.88), (y < 0.9) & (y > 2.2 * abs(x) - 1.2),
        ((abs(y) < thin) | (abs(x) < thin)) & (abs(y) < 1.15) & (abs(x) < 1.15),
    ])  # fmt: skip
    return every[kind, torch.arange(len(kind))].float()


@dataclass(frozen=True)
class ShapeAndTexture:
    """Four shapes filled with four textures (stripes of four directions). In training a class has a shape and a texture
    of its own; where these are in conflict, the measure is the share of decisions for the shape among those for the
    shape or the texture (Geirhos et al., as in GeoPE, section 5.4)."""

    side: int = 16
    patch: int = 2
    samples: int = 3000
    tested: int = 600
    noise: float = 0.5  # deviation of what is added to every pixel
    contrast: float = 1.0  # of stripes; the shape itself is as bright as 1

    def make(self, seed: int) -> Data:
        _agree(self.side >= 8 and self.side % self.patch == 0, f"side {self.side} is no multiple of patch, or below 8")
        random = torch.Generator().manual_seed(seed)

        def draw(shape: Tensor, texture: Tensor) -> Tensor:
            n = len(shape)
            uniform = lambda low, high: low + (high - low) * torch.rand((n, 1, 1), generator=random)  # noqa: E731
            radius = uniform(self.side * 0.25, self.side * 0.38)
            y, x = (torch.arange(float(self.side)).reshape(s) for s in ((1, -1, 1), (1, 1, -1)))
            centre_y, centre_x = (uniform(0, 1) * (self.side - 1 - 2 * radius) + radius for _ in "yx")
            inside = _shapes(shape, y - centre_y + 0 * x, x - centre_x + 0 * y, radius)
            angle = (texture * torch.pi / 4)[:, None, None]
            along = torch.cos(angle) * y + torch.sin(angle) * x
            stripes = torch.cos(2 * torch.pi * along / 3 + uniform(0, 2 * torch.pi))
            image = inside * (1 + self.contrast * stripes)
            return patches(image + self.noise * torch.randn(image.shape, generator=random), self.patch)

        def part(n: int, conflict: str = "") -> Part:
            shape = torch.randint(4, (n,), generator=random)
            if conflict:
                texture = (shape + torch.randint(1, 4, (n,), generator=random)) % 4
                return Part(draw(shape, texture), places, torch.stack([shape, texture], 1), conflict)
            return Part(draw(shape, shape), places, shape)

        places = grid_of(self.side // self.patch, self.side // self.patch)
        tests = {"agreeing": part(self.tested), "in conflict": part(self.tested, "shape bias")}
        return Data(("h", "w"), 4, self.patch**2, part(self.samples), tests)


@dataclass(frozen=True)
class MovingShapes:
    """Volumes of frames: a shape of any of four kinds moves in one of eight directions, which is the class."""

    frames: list[int] = field(default_factory=lambda: [4])  # the first is trained on, all are tested
    side: int = 12
    patch: int = 2
    samples: int = 3000
    tested: int = 600
    noise: float = 0.3

    def make(self, seed: int) -> Data:
        _agree(self.side >= 8 and self.side % self.patch == 0, f"side {self.side} is no multiple of patch, or below 8")
        _agree(bool(self.frames) and min(self.frames) > 1, f"frames are {self.frames}; expected two or more of them")
        random = torch.Generator().manual_seed(seed)

        def part(n: int, frames: int) -> Part:
            direction = torch.randint(8, (n,), generator=random)
            kind = torch.randint(4, (n,), generator=random)
            angle = (direction * torch.pi / 4)[:, None, None]
            start = torch.rand((2, n, 1, 1), generator=random) * 2 - 1
            y, x = (torch.arange(float(self.side)).reshape(s) for s in ((1, -1, 1), (1, 1, -1)))
            middle, volume = (self.side - 1) / 2, []
            for t in range(frames):
                moved = t - (frames - 1) / 2
                at_y, at_x = middle + start[0] + moved * torch.sin(angle), middle + start[1] + moved * torch.cos(angle)
                radius = torch.full((n, 1, 1), self.side / 5)
                image = _shapes(kind, y - at_y + 0 * x, x - at_x + 0 * y, radius)
                volume.append(patches(image + self.noise * torch.randn(image.shape, generator=random), self.patch))
            along = self.side // self.patch
            return Part(torch.stack(volume, 1).flatten(1, 2), grid_of(frames, along, along), direction)

        tests = {f"{frames} frames": part(self.tested, frames) for frames in self.frames}
        return Data(("t", "h", "w"), 8, self.patch**2, part(self.samples, self.frames[0]), tests)


@dataclass(frozen=True)
class Events:
    """Point sets as an event camera gives them: a bar sweeps over the image in one of eight directions, which is the
    class, and leaves events at places and times that lie on no grid; some are noise. A token is its polarity alone: all
    else is in positions."""

    points: list[int] = field(default_factory=lambda: [64])  # the first is trained on, all are tested
    samples: int = 3000
    tested: int = 600
    noise: float = 0.2  # share of events that say nothing
    extent: float = 8.0  # of the image and of time, in units of position
    offsets: list[float] = field(default_factory=list)  # tests where all positions have moved by so much

    def make(self, seed: int) -> Data:
        _agree(bool(self.points) and min(self.points) > 1, f"points are {self.points}; expected two or more of them")
        _agree(0 <= self.noise < 1, f"noise is {self.noise}; expected a share, below 1")
        random = torch.Generator().manual_seed(seed)

        def part(n: int, points: int, offset: float = 0.0) -> Part:
            uniform = lambda: torch.rand((n, points), generator=random) * 2 - 1  # noqa: E731
            direction = torch.randint(8, (n,), generator=random)
            angle = (direction * torch.pi / 4)[:, None]
            t, along = uniform(), uniform()
            front = torch.rand((n, points), generator=random) < 0.5  # the bar has two edges, of opposite polarity
            across = 0.8 * t + torch.where(front, 0.15, -0.15)
            y = across * torch.sin(angle) + along * torch.cos(angle)
            x = across * torch.cos(angle) - along * torch.sin(angle)
            lost = torch.rand((n, points), generator=random) < self.noise
            t, y, x = (torch.where(lost, uniform(), c) for c in (t, y, x))
            polarity = torch.where(lost, uniform().sign(), torch.where(front, 1.0, -1.0))
            places = (torch.stack([t, y, x], -1) + 1) * self.extent / 2 + offset
            return Part(polarity[..., None], places, direction)

        tests = {f"{points} events": part(self.tested, points) for points in self.points}
        tests |= {f"moved by {offset:g}": part(self.tested, self.points[0], offset) for offset in self.offsets}
        return Data(("t", "y", "x"), 8, 1, part(self.samples, self.points[0]), tests)


@dataclass(frozen=True)
class Arrows:
    """Which way points the arrow that the foot of the Y points to? LieRE's task of spatial reasoning (section 5.2), a
    token for a cell: arrows, letters that say nothing, and one Y, upright or on its side."""

    cells: list[int] = field(default_factory=lambda: [7])  # along a side: the first is trained on, all are tested
    arrows: int = 8  # of which one counts
    letters: int = 5
    samples: int = 6000
    tested: int = 600
    offsets: list[float] = field(default_factory=list)  # tests where all positions have moved by so much

    def make(self, seed: int) -> Data:
        _agree(bool(self.cells) and min(self.cells) >= 3 and self.arrows > 0 and self.letters >= 0
               and self.arrows + self.letters + 1 <= min(self.cells) ** 2,
               f"{self.arrows} arrows, {self.letters} letters and a Y do not fit {self.cells} cells")  # fmt: skip
        random = torch.Generator().manual_seed(seed)

        def part(n: int, side: int, offset: float = 0.0) -> Part:
            draw = lambda high, *shape: torch.randint(high, (n, *shape), generator=random)  # noqa: E731
            foot, at_y, at_x = draw(4), draw(side - 2) + 1, draw(side - 2) + 1
            step_y, step_x = torch.tensor([0, 1, 0, -1])[foot], torch.tensor([1, 0, -1, 0])[foot]
            own, pointed = at_y * side + at_x, (at_y + step_y) * side + at_x + step_x
            # 0: empty; 1 to 4: arrows; 5 to 8: the Y by its foot; 9 to 13: letters.
            order = torch.rand((n, side * side), generator=random)
            order.scatter_(1, own[:, None], 2.0).scatter_(1, pointed[:, None], 2.0)  # neither is drawn again
            others = order.argsort(1)[:, : self.arrows - 1 + self.letters]
            arrows, letters = 1 + draw(4, self.arrows - 1), 9 + draw(5, self.letters)
            cells = torch.zeros((n, side * side), dtype=torch.int64).scatter_(
                1, others, torch.cat([arrows, letters], 1)
            )
            targets = draw(4)
            cells.scatter_(1, own[:, None], 5 + foot[:, None]).scatter_(1, pointed[:, None], 1 + targets[:, None])
            return Part(cells, grid_of(side, side) + offset, targets)

        tests = {_name(side, side): part(self.tested, side) for side in self.cells}
        tests |= {f"moved by {offset:g}": part(self.tested, self.cells[0], offset) for offset in self.offsets}
        return Data(("h", "w"), 4, 14, part(self.samples, self.cells[0]), tests)


def _manual(source: str, most: int) -> bytes:
    """Pages of a manual in the order of their names, until there are `most` bytes."""
    if source == "python":
        from pydoc_data.topics import topics

        pages = (text.encode() for _, text in sorted(topics.items()))
    else:
        folder = pathlib.Path(source)
        _agree(folder.is_dir(), f"source '{source}' is no folder of pages, nor 'python', whose manual Python has in it")
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        pages = ((gzip.open(path) if path.suffix == ".gz" else open(path, "rb")).read() for path in files)
    text = b""
    for page in pages:
        text += page
        if len(text) >= most:
            break
    return text[:most]


@dataclass(frozen=True)
class Text:
    """The next character of a manual: of Python's own, or of pages in a folder (/usr/share/man/man1). The last tenth is
    tested, in bits a character of those that follow the first half, at every length as many of the same pieces."""

    source: str = "python"
    lengths: list[int] = field(default_factory=lambda: [64])  # characters: the first is trained on, all are tested
    samples: int = 3000  # pieces of the text, drawn from the seed
    tested: int = 100
    most: int = 1_000_000  # bytes of the text

    def make(self, seed: int) -> Data:
        text = numpy.frombuffer(_manual(self.source, self.most), dtype=numpy.uint8)
        _agree(bool(self.lengths) and min(self.lengths) > 1, f"lengths are {self.lengths}; expected two or more")
        _agree(
            len(text) >= 20 * (max(self.lengths) + 1), f"source '{self.source}' has {len(text)} bytes; expected more"
        )
        characters = torch.from_numpy(numpy.where(text < 128, text, 26).astype(numpy.int64))  # 26: "substitute"
        parts = characters[: len(text) * 9 // 10], characters[len(text) * 9 // 10 :]
        random = torch.Generator().manual_seed(seed)

        def part(of: Tensor, n: int, length: int, measure: str) -> Part:
            longest = max(self.lengths)
            starts = torch.randint(len(of) - longest - 1, (n, 1), generator=random)
            # Pieces of all lengths end at the same places, so that longer ones only have more before.
            pieces = of[starts + longest - length + torch.arange(length + 1)]
            return Part(pieces[:, :-1], grid_of(length), pieces[:, 1:], measure)

        tests = {}
        for length in self.lengths:
            random.manual_seed(seed)
            tests[f"{length} characters"] = part(parts[1], self.tested, length, "bits")
        return Data(("t",), 128, 128, part(parts[0], self.samples, self.lengths[0], "bits"), tests, causal=True)


SETS: dict[str, Any] = {
    "digits": Digits, "shape_and_texture": ShapeAndTexture, "moving_shapes": MovingShapes, "events": Events,
    "arrows": Arrows, "text": Text,
}  # fmt: skip


# ---- measures ----


def _accuracy(scores: Tensor, targets: Tensor) -> tuple[float, int]:
    return (scores.argmax(-1) == targets).sum().item(), targets.numel()


def _shape_bias(scores: Tensor, targets: Tensor) -> tuple[float, int]:
    found = scores.argmax(-1)
    shape, texture = (found == targets[:, 0]).sum().item(), (found == targets[:, 1]).sum().item()
    return shape, shape + texture


def _bits(scores: Tensor, targets: Tensor) -> tuple[float, int]:
    late = slice(targets.shape[1] // 2, None)  # what has at least half of the length before it
    loss = torch.nn.functional.cross_entropy(scores[:, late].flatten(0, 1), targets[:, late].flatten(), reduction="sum")
    return loss.item() / numpy.log(2), targets[:, late].numel()


@dataclass(frozen=True)
class Measure:
    title: str
    of: Callable[[Tensor, Tensor], tuple[float, int]]  # scores and targets: a sum, and of how many
    higher_is_better: bool = True


MEASURES = {
    "accuracy": Measure("accuracy", _accuracy),
    "shape bias": Measure("shape bias: share of decisions for the shape", _shape_bias),
    "bits": Measure("bits a character", _bits, False),
}
