package login

import (
	"html/template"
	"net/http"

	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// refused is the page that says why a login failed.
var refused = template.Must(template.New("refused").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Login failed · Sluice</title>
</head>
<body>
<main>
<h1>Login failed</h1>
<p>{{.}}</p>
<p><a href="/">Go to the login page</a></p>
</main>
</body>
</html>
`))

// refuse answers with a page. The cause goes to the log.
func (s *Sessions) refuse(w http.ResponseWriter, status int, text string, cause error) {
	s.Log.Info("login to "+s.About+" failed", "reason", text, "cause", describe(cause))
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = refused.Execute(w, text) // the client is gone if this fails
}

// describe returns the cause for the log. Errors of the exchange can contain the answer of the provider, which is cut.
func describe(cause error) string {
	if cause == nil {
		return ""
	}
	return excerpt.Bytes(cause.Error(), 500)
}
