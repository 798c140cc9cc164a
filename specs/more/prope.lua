-- PRoPE: cameras as relative position encodings.
-- "Cameras as Relative Positional Encoding" (Li et al.), section 3: a token i of a camera with the projection
-- P_i = lift(K_i) [R_i t_i; 0 1], world to image and 4 x 4, at the patch (x, y) of its image has
--   D_i = diag(P_i ... P_i, RoPE(x), RoPE(y)): half of the channels in fours by the camera, a quarter by each of x and y,
--   O = D (softmax(D^T Q (D^-1 K)^T / sqrt(d)) D^-1 V), so that scores and values see P_i P_j^-1 and x_i - x_j, y_i - y_j.
-- Rows of q take D^T and those of k D^-1, in one call; v is encoded as k is (a call with v in the place of k), and the
-- output by the kernel of -D rows=out, which has D, as q. Cameras are the inputs `camera` and `camera_inverse`, 4 x 4 by
-- rows, of each token (one row for all heads: [B,1,N,16]); K's focal lengths are in units of the image's width and height.
-- Angles of RoPE are base^(-j/m), m = D/8, in the authors' sense and layout: pairs (j, j + m) of a quarter.
-- GTA's representation of poses is this with K = 1 (gta.lua is its RoPE alone).
local pe = require "pegen"

local D = pe.option("head_dim", 64, "channels per head, a multiple of 8")
local base = pe.option("base", 100.0, "frequency base")
local rows = pe.option("rows", "scores", "scores: D^T of q, D^-1 of k and v; out: D, of outputs as q", { "scores", "out" })

if D % 8 ~= 0 then error("option 'head_dim' is " .. D .. ", a multiple of 8 was expected") end
if base <= 0 then error("option 'base' is " .. base .. ", a positive number was expected") end
local m = D // 8 -- blocks of cameras, and pairs of each of x and y

local source = "Li et al., section 3"
local camera = pe.input {
  name = "camera", shape = { 16 }, doc = "the token's projection P, world to image, by rows", source = source,
}
local inverse = rows == "scores" and pe.input {
  name = "camera_inverse", shape = { 16 }, doc = "the same of P^-1", source = source,
}

-- Blocks of one form: of cameras `of` and pairs of x and of y side by side; numbers choose which.
local function matrix(entry, sense)
  return function(r, i)
    local is_camera = i < m and 1 or 0
    local result, turn = {}, 1 - is_camera
    local frequency = base ^ (-(i % m) / m)
    for row = 0, 3 do
      result[row + 1] = {}
      for column = 0, 3 do
        local x = is_camera * entry(row, column)
        if row // 2 == column // 2 then
          local angle = sense * frequency * (row < 2 and r.x or r.y)
          if row == column then x = x + turn * pe.cos(angle)
          else x = x + turn * (row < column and -1 or 1) * pe.sin(angle) end
        end
        result[row + 1][column + 1] = x
      end
    end
    return result
  end
end

local function own(row, column) return camera(4 * row + column) end
local function transposed(row, column) return camera(4 * column + row) end
local function inverted(row, column) return inverse(4 * row + column) end

return pe.encoding {
  name = "prope",
  doc = "projections of cameras, and RoPE of patches (PRoPE, Li et al.)",
  axes = { "x", "y" },
  head_dim = D,
  block = pe.linear(4),
  layout = function(c, i)
    if i < m then return 4 * i + c end
    return 4 * m + c // 2 * 2 * m + c % 2 * m + i - m
  end,
  matrix = rows == "out" and matrix(own, 1) or { q = matrix(transposed, -1), k = matrix(inverted, -1) },
}
