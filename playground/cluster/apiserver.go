package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"github.com/spf13/pflag"
)

const serviceRange = "10.96.0.0/16"

// auditPolicy counts requests without their bodies.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules: [{level: Metadata}]
`

// apiServer is the real kube-apiserver with its aggregator and custom resources.
type apiServer struct {
	config *rest.Config
	done   chan struct{}
}

func startAPIServer(ctx context.Context, p pki, etcd string, o Options, failed chan<- error) (*apiServer, error) {
	listener, err := loopback(o.Port)
	if err != nil {
		return nil, err
	}
	s := options.NewServerRunOptions()
	s.SecureServing.Listener = listener
	s.SecureServing.BindAddress = nil
	flags := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	for _, set := range s.Flags().FlagSets {
		flags.AddFlagSet(set)
	}
	args := []string{
		"--bind-address=127.0.0.1",
		"--etcd-servers=" + etcd,
		"--tls-cert-file=" + p.file("server.crt"), "--tls-private-key-file=" + p.file("server.key"),
		"--client-ca-file=" + p.file("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + p.file("service-account.crt"),
		"--service-account-signing-key-file=" + p.file("service-account.key"),
		"--service-cluster-ip-range=" + serviceRange,
		"--authorization-mode=RBAC",
		"--endpoint-reconciler-type=none",
		"--allow-privileged",
		"--profiling=false",
		"--max-requests-inflight=2000", "--max-mutating-requests-inflight=1000",
		"--watch-cache=true",
		"--event-ttl=1h",
	}
	if o.AuditLog != "" {
		policy := p.file("audit-policy.yaml")
		if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
			return nil, err
		}
		args = append(args, "--audit-policy-file="+policy, "--audit-log-path="+o.AuditLog, "--audit-log-mode=blocking")
	}
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	s.SecureServing.BindPort = listenerPort(listener)
	if err := s.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return nil, err
	}
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	completed, err := s.Complete(ctx)
	if err != nil {
		return nil, err
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	config, err := app.NewConfig(completed)
	if err != nil {
		return nil, err
	}
	full, err := config.Complete()
	if err != nil {
		return nil, err
	}
	chain, err := app.CreateServerChain(full)
	if err != nil {
		return nil, err
	}
	prepared, err := chain.PrepareRun()
	if err != nil {
		return nil, err
	}
	server := &apiServer{
		done: make(chan struct{}),
		config: &rest.Config{
			Host: "https://" + listener.Addr().String(),
			TLSClientConfig: rest.TLSClientConfig{
				CAData: p.ca.cert, CertData: p.admin.cert, KeyData: p.admin.key,
			},
			QPS: -1, // unthrottled: it is on the same machine
		},
	}
	go func() {
		defer close(server.done)
		if err := prepared.Run(ctx); err != nil && ctx.Err() == nil {
			failed <- fmt.Errorf("the API server ended: %w", err)
		}
	}()
	return server, nil
}

// waitReady returns once the server says that it is ready.
func (s *apiServer) waitReady(ctx context.Context, failed <-chan error) error {
	client, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		select {
		case err := <-failed:
			return false, err
		default:
		}
		var status int
		client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).StatusCode(&status)
		return status == http.StatusOK, nil
	})
}
