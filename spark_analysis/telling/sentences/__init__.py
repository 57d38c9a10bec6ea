"""Results in plain sentences, the same ones wherever a study is told."""
