-- error: files beside the spec
local s = require "/etc/passwd" -- HERE
