-- error: files beside the spec
local s = require "a\0b" -- HERE
