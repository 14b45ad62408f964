package mcp

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	sdkauth "github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/network/listen"
	"github.com/sluice-gitops/sluice/internal/ui"
)

const (
	// Path is where the tools are served.
	Path = "/mcp"
	// metadataPath describes how to log in (RFC 9728).
	metadataPath = "/.well-known/oauth-protected-resource"

	userKey      = "user"  // in the login of a request
	maxBody      = 2 << 20 // bytes of a request
	bodyTimeout  = 30 * time.Second
	tokenTTL     = time.Minute // how long a login counts within a request; each request is checked
	shutdownTime = 2 * time.Second
)

// Login decides who makes a request.
type Login interface {
	// Bearer returns who has a token, or an error that may be shown.
	Bearer(ctx context.Context, token string) (*ui.User, error)
}

// HTTPOptions configure the server over HTTP.
type HTTPOptions struct {
	Login    Login
	External *url.URL // scheme and host by which clients reach the server; requests for other hosts are refused
	Issuer   string   // of tokens, for clients that log in by OAuth; may be empty
}

// Serve serves over streamable HTTP until the context ends. It keeps no sessions, so that any replica can answer.
func (s *Server) Serve(ctx context.Context, l net.Listener, o HTTPOptions) error {
	server := listen.Server(s.Handler(o))
	server.ReadTimeout, server.WriteTimeout = bodyTimeout, previewTimeout+bodyTimeout
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	stop := guard.AfterDone(ctx, "shutdown of the MCP server", func() {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
		defer cancel()
		_ = server.Shutdown(within) // what remains is cut
	})
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Handler returns the handler of all requests.
func (s *Server) Handler(o HTTPOptions) http.Handler {
	metadata := &oauthex.ProtectedResourceMetadata{Resource: o.External.String() + Path, ResourceName: "Sluice",
		BearerMethodsSupported: []string{"header"}}
	if o.Issuer != "" {
		metadata.AuthorizationServers = []string{o.Issuer}
	}
	verify := func(ctx context.Context, token string, _ *http.Request) (*sdkauth.TokenInfo, error) {
		u, err := o.Login.Bearer(ctx, token)
		if err != nil {
			s.Log.Info("login to the MCP server refused", "reason", err.Error())
			return nil, errors.Join(sdkauth.ErrInvalidToken, err)
		}
		return &sdkauth.TokenInfo{UserID: u.Name, Expiration: time.Now().Add(tokenTTL),
			Extra: map[string]any{userKey: u}}, nil
	}
	tools := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s.sdk },
		&sdk.StreamableHTTPOptions{Stateless: true, JSONResponse: true, MaxRequestBodyBytes: maxBody,
			DisableLocalhostProtection: true}) // hosts are checked below
	mux := http.NewServeMux()
	mux.Handle(Path, sdkauth.RequireBearerToken(verify, &sdkauth.RequireBearerTokenOptions{
		ResourceMetadataURL: o.External.String() + metadataPath})(tools))
	for _, path := range []string{metadataPath, metadataPath + Path} {
		mux.Handle(path, sdkauth.ProtectedResourceMetadataHandler(metadata))
	}
	return guard.Handler("request to the MCP server", onlyHost(o.External.Host,
		http.NewCrossOriginProtection().Handler(mux)))
}

// onlyHost refuses requests for other hosts, so that a site whose name is made to resolve to this address cannot send
// requests (DNS rebinding).
func onlyHost(host string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.EqualFold(host, r.Host) {
			http.Error(w, "this address is served only as "+host, http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
