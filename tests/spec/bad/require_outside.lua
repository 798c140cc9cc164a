-- error: files beside the spec
local s = require "../good/plain" -- HERE
