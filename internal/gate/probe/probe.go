// Package probe runs the checks of gates once: an HTTP endpoint, a Prometheus query, an object. Probes fail closed: an
// endpoint that cannot be reached or an invalid response is an error. They use only the given transport.
package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/sluice-gitops/sluice/internal/build/expression"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// maxResponse bounds the response of Prometheus, in bytes.
const maxResponse = 1 << 20

// Login is the credentials for an endpoint.
type Login struct {
	Basic  auth.Basic
	Bearer string
}

// LoginFrom reads bearerToken, or username and password, from the data of a Secret. The error is a fault.
func LoginFrom(data map[string][]byte) (Login, error) {
	basic, err := auth.BasicFrom(data)
	return Login{Basic: basic, Bearer: strings.TrimSpace(string(data["bearerToken"]))}, err
}

func (l Login) addTo(req *http.Request) {
	switch {
	case l.Bearer != "":
		req.Header.Set("Authorization", "Bearer "+l.Bearer)
	case l.Basic.Username != "":
		req.SetBasicAuth(l.Basic.Username, l.Basic.Password)
	}
}

// HTTP sends a GET request and returns the status for the user. It returns an error unless the status is 2xx. Neither
// contains the content of the response.
func HTTP(ctx context.Context, transport http.RoundTripper, address string, login Login) (string, error) {
	resp, err := get(ctx, transport, address, login)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return "", fmt.Errorf("the endpoint returned status %d", resp.StatusCode)
	}
	return fmt.Sprintf("the endpoint returned status %d", resp.StatusCode), nil
}

func get(ctx context.Context, transport http.RoundTripper, address string, login Login) (*http.Response, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("the address is not an HTTP URL")
	}
	if u.User != nil {
		return nil, errors.New("the address contains credentials: use secretRef instead")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, errors.New("the address is not an HTTP URL")
	}
	login.addTo(req)
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if f := fault.As(err); f != nil {
		return nil, f // without the URL that http.Client adds
	}
	if err != nil {
		return nil, errors.New("the endpoint did not respond in time")
	}
	return resp, nil
}

// Prometheus runs an instant query and returns the highest value for the user. It returns an error unless the query
// returns values and all are below the limit. See https://prometheus.io/docs/prometheus/latest/querying/api/.
func Prometheus(ctx context.Context, transport http.RoundTripper, address, query string, below float64,
	login Login) (string,
	error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", errors.New("the address is not an HTTP URL")
	}
	u = u.JoinPath("api/v1/query")
	u.RawQuery = url.Values{"query": {query}}.Encode()
	resp, err := get(ctx, transport, u.String(), login)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	if err != nil {
		return "", errors.New("the response is incomplete")
	}
	if len(body) > maxResponse {
		return "", fmt.Errorf("the response is larger than %d bytes: aggregate in the query", maxResponse)
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("Prometheus returned status %d%s", resp.StatusCode, errorType(body))
	}
	values, err := readValues(body)
	if err != nil {
		return "", err
	}
	highest := math.Inf(-1)
	for _, v := range values {
		if !(v < below) { // also true for NaN
			return "", fmt.Errorf("the query returned %v, which is not below %v", v, below)
		}
		highest = max(highest, v)
	}
	if len(values) == 0 {
		return "", errors.New("the query returned no value")
	}
	return fmt.Sprintf("the query returned %v, which is below %v", highest, below), nil
}

// response is a response of the Prometheus HTTP API.
type response struct {
	Status    string `json:"status"`
	ErrorType string `json:"errorType"`
	Data      struct {
		ResultType string          `json:"resultType"`
		Result     json.RawMessage `json:"result"`
	} `json:"data"`
}

// errorType returns the documented type of error in a response, for a message. The rest of the response is not shown.
func errorType(body []byte) string {
	var r response
	if json.Unmarshal(body, &r) == nil {
		switch r.ErrorType {
		case "timeout", "canceled", "execution", "bad_data", "internal", "unavailable", "not_found":
			return " (" + r.ErrorType + ")"
		}
	}
	return ""
}

// readValues parses the values of an instant query.
func readValues(body []byte) ([]float64, error) {
	var r response
	if err := json.Unmarshal(body, &r); err != nil || r.Status != "success" {
		return nil, errors.New("the response is not a valid Prometheus response")
	}
	var samples []sample
	switch r.Data.ResultType {
	case "vector":
		var vector []struct {
			Value sample `json:"value"`
		}
		if err := json.Unmarshal(r.Data.Result, &vector); err != nil {
			return nil, errors.New("the response is not a valid Prometheus response")
		}
		for _, v := range vector {
			samples = append(samples, v.Value)
		}
	case "scalar":
		samples = make([]sample, 1)
		if err := json.Unmarshal(r.Data.Result, &samples[0]); err != nil {
			return nil, errors.New("the response is not a valid Prometheus response")
		}
	default:
		return nil, errors.New("the query returned neither an instant vector nor a scalar")
	}
	var values []float64
	for _, s := range samples {
		text, ok := s[1].(string)
		v, err := strconv.ParseFloat(text, 64)
		if !ok || err != nil {
			return nil, errors.New("the response is not a valid Prometheus response")
		}
		values = append(values, v)
	}
	return values, nil
}

// sample is a timestamp and a value.
type sample [2]any

// Object returns an error unless an expression over the variable "object" is true. Errors about a Secret have
// no details.
func Object(ctx context.Context, compiled *expression.Expression, object map[string]any) (string, error) {
	holds, err := compiled.Holds(ctx, expression.Map{"object": object})
	switch {
	case err != nil && object["kind"] == "Secret":
		return "", errors.New("the expression failed")
	case err != nil:
		return "", fmt.Errorf("the expression failed: %w", err)
	case !holds:
		return "", errors.New("the expression is false")
	}
	return "the expression is true", nil
}
