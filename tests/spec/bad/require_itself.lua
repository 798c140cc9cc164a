-- error: requires itself
local s = require "require_itself" -- HERE
