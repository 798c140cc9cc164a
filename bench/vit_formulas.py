"""What bench/vit.py times beside the kernels: encodings as their papers and their authors' code write them, in PyTorch.

A formula is a module with the operands of the kernel's description as parameters, the same values in both. What does
not depend on parameters (angles of fixed frequencies) is computed once, when the module is made, and what depends on
them, once a call and not for every batch. forward(q, k): [B,H,N,D] each, encoded.
"""
import torch
from torch import nn


class Formula(nn.Module):
    def __init__(self, encoding, positions):
        super().__init__()
        for name, parameter in encoding.named_parameters():
            self.register_parameter(name, nn.Parameter(parameter.detach().clone()))
        self.register_buffer("positions", positions)


class RoPEMixed(Formula):
    """rope-vit: complex numbers."""

    def forward(self, q, k):
        angles = torch.einsum("np,phj->hnj", self.positions, self.freqs)
        turns = torch.polar(torch.ones_like(angles), angles)

        def turned(x):
            x = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
            return torch.view_as_real(x * turns).flatten(3)

        return turned(q), turned(k)


# ---- quaternions ----


def hamilton(a, b):
    aw, ax, ay, az = a.unbind(-1)
    bw, bx, by, bz = b.unbind(-1)
    return torch.stack(
        [
            aw * bw - ax * bx - ay * by - az * bz,
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
        ],
        -1,
    )


def exponential(v):
    """The exponential of pure quaternions [..., 3]."""
    length = v.norm(dim=-1, keepdim=True)
    return torch.cat([length.cos(), v * torch.where(length > 1e-8, length.sin() / length.clamp(min=1e-8), 1)], -1)


def turned_by_quaternions(x, rotor):
    """r x r^-1 of blocks of three channels; rotor: [H or 1, N, G, 4]."""
    blocks = 3 * rotor.shape[-2]
    v = x[..., :blocks].unflatten(-1, (-1, 3))
    pure = torch.cat([torch.zeros_like(v[..., :1]), v], -1)
    inverse = rotor * rotor.new_tensor([1.0, -1.0, -1.0, -1.0])
    v = hamilton(hamilton(rotor, pure), inverse)[..., 1:]
    return torch.cat([v.flatten(-2), x[..., blocks:]], -1)


class Quaternions(Formula):
    def forward(self, q, k):
        rotor = self.rotor()
        return turned_by_quaternions(q, rotor), turned_by_quaternions(k, rotor)


class GeoPE(Quaternions):
    """Section 3.2, eq. 3-4: the mean of the axes' logarithms; they have no parameters."""

    def __init__(self, encoding, positions):
        super().__init__(encoding, positions)
        blocks = encoding.kernel.head_dim // 3
        theta = positions[:, :, None] * 100.0 ** (2 * torch.arange(blocks) / encoding.kernel.head_dim)
        half = torch.stack([torch.zeros_like(theta[:, 0]), theta[:, 0], theta[:, 1]], -1) / 2 / 2
        self.register_buffer("fixed", exponential(half.double()).float()[None])

    def rotor(self):
        return self.fixed


class Spherical(Quaternions):
    """CARE, section 3.3: Rot_x(theta r_0) Rot_z(theta r_1)."""

    def __init__(self, encoding, positions):
        super().__init__(encoding, positions)
        blocks = encoding.kernel.head_dim // 3
        half = positions[:, :, None] * 100.0 ** (-2 * torch.arange(blocks) / encoding.kernel.head_dim) / 2
        x, z = (torch.zeros(*half[:, 0].shape, 3) for _ in range(2))
        x[..., 0], z[..., 2] = half[:, 0], half[:, 1]
        self.register_buffer("fixed", hamilton(exponential(x), exponential(z))[None])

    def rotor(self):
        return self.fixed


class QuatRo(Quaternions):
    """CARE, section 4: r_x r_y x r_y^-1 r_x^-1, r_a = exp(theta_a p_a)."""

    def rotor(self):
        x, y = (exponential(torch.einsum("n,hgc->hngc", self.positions[:, a], self.theta[a])) for a in (0, 1))
        return hamilton(x, y)


# ---- the Clifford algebra of three dimensions ----

_BLADES = (0b000, 0b001, 0b010, 0b011, 0b100, 0b101, 0b110, 0b111)  # 1 e1 e2 e12 e3 e31 e23 e123, the sixth negated


def cayley():
    """[8,8,8]: the product of blades i and j is the sum over k of C[i,j,k] times blade k."""
    table = torch.zeros(8, 8, 8)
    for i, a in enumerate(_BLADES):
        for j, b in enumerate(_BLADES):
            swaps = sum(bin((a >> s) & b).count("1") for s in (1, 2))
            table[i, j, _BLADES.index(a ^ b)] = -1 if swaps % 2 else 1
    sign = torch.ones(8)
    sign[5] = -1  # e31 for e13
    return table * sign[:, None, None] * sign[:, None] * sign


class CARE(Formula):
    """Appendix A: R x R~ by two geometric products, R = R_y R_x, R_a = exp(theta_a B_a / 2) in the opposite sense."""

    def __init__(self, encoding, positions):
        super().__init__(encoding, positions)
        self.register_buffer("table", cayley())

    def product(self, a, b):
        return torch.einsum("...i,...j,ijk->...k", a, b, self.table)

    def forward(self, q, k):
        rotors = []
        for a in (0, 1):
            half = torch.einsum("n,hg,hgc->hngc", self.positions[:, a], self.freq[a], self.axis[a]) / 2
            (w, x, y, z), still = exponential(half).unbind(-1), torch.zeros_like(half[..., 0])
            rotors.append(torch.stack([w, still, still, z, still, y, x, still], -1))
        rotor = self.product(rotors[1], rotors[0])
        reverse = rotor * rotor.new_tensor([1, 1, 1, -1, 1, -1, -1, -1])
        left = torch.einsum("...i,ijk->...jk", rotor, self.table)
        right = torch.einsum("...i,jik->...jk", reverse, self.table)

        def turned(x):
            x = x.unflatten(-1, (-1, 8))
            return torch.einsum("bhngj,hngjk,hngkl->bhngl", x, left, right).flatten(-2)

        return turned(q), turned(k)


# ---- exponentials of matrices ----


class Matrices(Formula):
    def forward(self, q, k):
        matrix = torch.matrix_exp(self.exponents())  # [H, N, G, b, b]

        def turned(x):
            x = x.unflatten(-1, (matrix.shape[-3], -1))
            return torch.einsum("hngij,bhngj->bhngi", matrix, x).flatten(-2)

        return turned(q), turned(k)


class LieRE(Matrices):
    """Section 4."""

    def exponents(self):
        upper = self.generators.triu(1)
        return torch.einsum("np,phgij->hngij", self.positions, upper - upper.mT).contiguous()


class ComRoPE(Matrices):
    """Block g listens to axis g mod P (AP), or to all, times a multiplier (LD)."""

    def exponents(self):
        skew = self.generators - self.generators.mT
        blocks = skew.shape[-3]
        if hasattr(self, "multiplier"):
            speed = self.positions @ self.multiplier
        else:
            speed = self.positions[:, torch.arange(blocks) % self.positions.shape[1]]
        return speed[None, :, :, None, None] * skew[:, None]


# ---- parabolas: rows wider than a head, of what the token says ----


class PaPE(Formula):
    """Section 4.1, eq. 13-14: forward(q, k, a, b), a and b: [B,H,N,m]; rows of D + 3m + 2 channels."""

    def forward(self, q, k, a, b):
        a = -nn.functional.softplus(a)
        s = torch.einsum("hmp,np->hnm", self.projection, self.positions)
        q = torch.cat([q, (a * s * s).sum(-1, keepdim=True), a, -2 * a * s, -(b * s).sum(-1, keepdim=True), b], -1)
        one, s = torch.ones_like(k[..., :1]), s.expand(*k.shape[:3], -1)
        return q, torch.cat([k, one, s * s, s, one, s], -1)


class PaPERI(Formula):
    """Section 4: -softplus(a) |w_p (r_j - r_i)|^2, in the columns of eq. 13-14; forward(q, k, a), a: [B,H,N]."""

    def forward(self, q, k, a):
        weight = -nn.functional.softplus(a)[..., None] * self.projection[:, None, None] ** 2
        square = (self.positions**2).sum(-1, keepdim=True)
        q = torch.cat([q, weight * square, weight, -2 * weight * self.positions], -1)
        own = torch.cat([torch.ones_like(square), square, self.positions], -1)
        return q, torch.cat([k, own.expand(*k.shape[:3], -1)], -1)
