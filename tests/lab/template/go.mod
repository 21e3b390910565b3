module agent-forge.containeroo.ch/lab/template

go 1.25.0
