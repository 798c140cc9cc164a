-- error: option 'head_dim' is declared twice
local pe = require "pegen"
local D = pe.option("head_dim", 16, "channels per head")
local l = pe.option("layout", "split", "pairs", { "split", "interleaved" }) -- LAYOUT
local E = pe.option("head_dim", 1, "again") -- HERE
