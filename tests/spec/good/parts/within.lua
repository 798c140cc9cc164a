return { turn = "e12", blocks = 8 }
