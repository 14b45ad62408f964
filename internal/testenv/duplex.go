package testenv

import "net/http"

// FullDuplex returns a handler for proxies of git: it may answer while the body of the request is still sent. Git
// servers answer before the end of a chunked body. Without this, the HTTP server of Go closes the body then, so that
// the proxy fails to forward the rest of it, and cuts off the response.
func FullDuplex(proxy http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 { // others always are full duplex
			if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
		}
		proxy.ServeHTTP(w, r)
	})
}
