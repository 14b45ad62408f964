package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-gitops/sluice/playground/internal/pki"
)

// Annotations of a pod that are logs of its containers. The value endless is one line without an end.
const (
	LogAnnotation         = "playground.sluice.dev/log"
	PreviousLogAnnotation = "playground.sluice.dev/previous-log" // of containers that ended
)

const (
	logEndless = "endless"
	noLog      = "simulated container: no program runs here. The annotation " + LogAnnotation + " sets this log.\n"
	logHost    = "127.0.0.1" // of all nodes
)

// serveLogs serves the logs of containers, as the kubelets of all nodes, until the context ends. It returns the port.
// The API server asks with a path /containerLogs/<namespace>/<pod>/<container>.
func serveLogs(ctx context.Context, client kubernetes.Interface) (int32, error) {
	ca, err := pki.NewAuthority("kubelets")
	if err != nil {
		return 0, err
	}
	pair, err := ca.Server("kubelet", logHost)
	if err != nil {
		return 0, err
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return 0, err
	}
	l, err := tls.Listen("tcp", net.JoinHostPort(logHost, "0"), &tls.Config{Certificates: []tls.Certificate{cert},
		MinVersion: tls.VersionTLS12})
	if err != nil {
		return 0, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		pod, err := client.CoreV1().Pods(r.PathValue("namespace")).Get(r.Context(), r.PathValue("pod"),
			metav1.GetOptions{})
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		writeLog(w, r, pod)
		if r.URL.Query().Get("follow") == "true" {
			_ = http.NewResponseController(w).Flush() // the client is gone if this fails
			<-r.Context().Done()
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return int32(l.Addr().(*net.TCPAddr).Port), nil
}

// writeLog writes the log of a container, with the limits of the request.
func writeLog(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) {
	limit := func(name string) int64 {
		n, err := strconv.ParseInt(r.URL.Query().Get(name), 10, 64)
		if err != nil || n < 0 {
			return 1 << 62
		}
		return n
	}
	query := r.URL.Query()
	text := pod.Annotations[LogAnnotation]
	if query.Get("previous") == "true" {
		if text = pod.Annotations[PreviousLogAnnotation]; text == "" {
			http.Error(w, "previous terminated container not found", http.StatusBadRequest)
			return
		}
	}
	if text == logEndless {
		_, _ = io.CopyN(w, endless{}, limit("limitBytes")) // the client is gone if this fails
		return
	}
	if text == "" {
		text = noLog
	}
	lines := slices.Collect(strings.Lines(text))
	lines = lines[max(0, int64(len(lines))-limit("tailLines")):]
	if query.Get("timestamps") == "true" {
		addTimes(lines, pod.CreationTimestamp.Time)
	}
	text = strings.Join(lines, "")
	fmt.Fprint(w, text[:min(int64(len(text)), limit("limitBytes"))])
}

// addTimes puts a time before each line, a millisecond apart, as a kubelet does.
func addTimes(lines []string, from time.Time) {
	for i, line := range lines {
		at := from.Add(time.Duration(i) * time.Millisecond)
		lines[i] = at.UTC().Format("2006-01-02T15:04:05.000000000Z") + " " + line
	}
}

// endless is a line without an end.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return copy(b, bytes.Repeat([]byte("x"), len(b))), nil }

// setLogs tells the API server where to ask for logs of the pods of a node.
func setLogs(ctx context.Context, client kubernetes.Interface, name string, port int32) error {
	patch := fmt.Appendf(nil, `{"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":%d}}}}`, port)
	_, err := client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
