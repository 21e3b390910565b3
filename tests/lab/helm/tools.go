//go:build tools

// Package tools names the program that the lab builds, so that `go mod tidy`
// keeps its dependencies.
package tools

import _ "helm.sh/helm/v3/cmd/helm"
