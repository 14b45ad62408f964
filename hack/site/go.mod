module github.com/sluice-gitops/sluice/hack/site

go 1.26

require (
	github.com/golangci/misspell v0.7.0
	github.com/yuin/goldmark v1.7.13
)
