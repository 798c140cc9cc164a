return "of parts"
