package artifact

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// TestStandbyNeverDeniesAnArtifact has a replica whose store has an older artifact than that of the leader.
func TestStandbyNeverDeniesAnArtifact(t *testing.T) {
	var leads atomic.Bool
	s := openStore(t, t.TempDir(), newClock())
	a := put(t, s, FromMap(map[string]string{"a": "1"}), "main@sha1:0123", nil)
	server := serve(t, &Server{Store: s, Incomplete: func() bool { return !leads.Load() }})
	dir := server.URL + "/" + a.Path[:strings.LastIndexByte(a.Path, '/')]
	for path, want := range map[string][2]int{ // on a standby, and on the leader
		server.URL + "/" + a.Path:                             {http.StatusOK, http.StatusOK},
		dir + "/other.tar.gz":                                 {http.StatusServiceUnavailable, http.StatusNotFound},
		dir + "/latest.tar.gz":                                {http.StatusServiceUnavailable, http.StatusOK},
		dir + "/revision/0123":                                {http.StatusServiceUnavailable, http.StatusOK},
		dir + "/revision/4567":                                {http.StatusServiceUnavailable, http.StatusNotFound},
		server.URL + "/digest/" + a.Digest:                    {http.StatusServiceUnavailable, http.StatusOK},
		server.URL + "/gitrepository/default/b/latest.tar.gz": {http.StatusServiceUnavailable, http.StatusNotFound},
		server.URL + "/nothing":                               {http.StatusNotFound, http.StatusNotFound},
	} {
		for i, want := range want {
			leads.Store(i == 1)
			resp, body := get(t, http.MethodGet, path, nil)
			isExplained := resp.Header.Get("Retry-After") != "" &&
				strings.Contains(string(body), "--storage-backend-s3-endpoint")
			if resp.StatusCode != want || want == http.StatusServiceUnavailable && !isExplained {
				t.Errorf("%s, leads: %t: got %d %s, want %d", path, i == 1, resp.StatusCode, body, want)
			}
		}
	}
}
