"""The laboratory: small transformers that differ in nothing but the encoding, trained through pegen's kernels.

    pegen lab study.toml -o results/

study.py reads what is to be tried, data.py has what is learned, model.py the transformer, train.py one run, engine.py
hands runs to as many processes as there are, statistics.py says what can be told from so few, report.py writes it.
Needs pegen-kernels[lab].
"""
