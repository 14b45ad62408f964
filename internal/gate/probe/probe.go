// Package probe asks once whether what a gate's check is about holds: an endpoint, a query, an object. A
// probe fails closed: what cannot be asked, or answers with nonsense, does not hold. It opens connections by
// the transport that it is given, and no others.
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

	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/expression"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// maxAnswer bounds what is read of an answer of Prometheus, in bytes.
const maxAnswer = 1 << 20

// Login is what an endpoint wants to know.
type Login struct {
	Basic  auth.Basic
	Bearer string
}

// LoginFrom reads bearerToken, or username and password, of a Secret. The error is a fault.
func LoginFrom(data map[string][]byte) (Login, error) {
	basic, err := auth.BasicFrom(data)
	return Login{Basic: basic, Bearer: strings.TrimSpace(string(data["bearerToken"]))}, err
}

func (l Login) to(req *http.Request) {
	switch {
	case l.Bearer != "":
		req.Header.Set("Authorization", "Bearer "+l.Bearer)
	case l.Basic.Username != "":
		req.SetBasicAuth(l.Basic.Username, l.Basic.Password)
	}
}

// HTTP returns what it found, and an error unless the endpoint answers with a 2xx status. Neither holds
// anything of the answer's content.
func HTTP(ctx context.Context, via http.RoundTripper, address string, login Login) (string, error) {
	resp, err := get(ctx, via, address, login)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return "", fmt.Errorf("the endpoint answered with status %d", resp.StatusCode)
	}
	return fmt.Sprintf("the endpoint answered with status %d", resp.StatusCode), nil
}

func get(ctx context.Context, via http.RoundTripper, address string, login Login) (*http.Response, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("the address is no HTTP URL")
	}
	if u.User != nil {
		return nil, errors.New("the address holds a login: use secretRef")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, errors.New("the address is no HTTP URL")
	}
	login.to(req)
	resp, err := (&http.Client{Transport: via}).Do(req)
	if f := fault.As(err); f != nil {
		return nil, f // without the URL that the client puts before it
	}
	if err != nil {
		return nil, errors.New("the endpoint did not answer in time")
	}
	return resp, nil
}

// Prometheus returns what it found, and an error unless an instant query gives values, and all of them are
// below a number. The API is documented at https://prometheus.io/docs/prometheus/latest/querying/api/.
func Prometheus(ctx context.Context, via http.RoundTripper, address, query string, below float64, login Login) (string,
	error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", errors.New("the address is no HTTP URL")
	}
	u = u.JoinPath("api/v1/query")
	u.RawQuery = url.Values{"query": {query}}.Encode()
	resp, err := get(ctx, via, u.String(), login)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return "", errors.New("the answer broke off")
	}
	if len(body) > maxAnswer {
		return "", fmt.Errorf("the answer is larger than %d bytes: let the query sum up", maxAnswer)
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("Prometheus answered with status %d%s", resp.StatusCode, refusal(body))
	}
	values, err := readValues(body)
	if err != nil {
		return "", err
	}
	highest := math.Inf(-1)
	for _, v := range values {
		if !(v < below) { // nor is NaN
			return "", fmt.Errorf("the query gives %v, which is not below %v", v, below)
		}
		highest = max(highest, v)
	}
	if len(values) == 0 {
		return "", errors.New("the query gives no value")
	}
	return fmt.Sprintf("the query gives %v, which is below %v", highest, below), nil
}

// answer is that of Prometheus.
type answer struct {
	Status    string `json:"status"`
	ErrorType string `json:"errorType"`
	Data      struct {
		ResultType string          `json:"resultType"`
		Result     json.RawMessage `json:"result"`
	} `json:"data"`
}

// refusal is the documented kind of error in an answer; what else it holds is not repeated.
func refusal(body []byte) string {
	var a answer
	if json.Unmarshal(body, &a) == nil {
		switch a.ErrorType {
		case "timeout", "canceled", "execution", "bad_data", "internal", "unavailable", "not_found":
			return " (" + a.ErrorType + ")"
		}
	}
	return ""
}

// readValues reads the values of an instant query.
func readValues(body []byte) ([]float64, error) {
	var a answer
	if err := json.Unmarshal(body, &a); err != nil || a.Status != "success" {
		return nil, errors.New("the answer is not one of Prometheus")
	}
	var samples []sample
	switch a.Data.ResultType {
	case "vector":
		var vector []struct {
			Value sample `json:"value"`
		}
		if err := json.Unmarshal(a.Data.Result, &vector); err != nil {
			return nil, errors.New("the answer is not one of Prometheus")
		}
		for _, v := range vector {
			samples = append(samples, v.Value)
		}
	case "scalar":
		samples = make([]sample, 1)
		if err := json.Unmarshal(a.Data.Result, &samples[0]); err != nil {
			return nil, errors.New("the answer is not one of Prometheus")
		}
	default:
		return nil, errors.New("the query gives no numbers of one time")
	}
	var values []float64
	for _, s := range samples {
		text, ok := s[1].(string)
		v, err := strconv.ParseFloat(text, 64)
		if !ok || err != nil {
			return nil, errors.New("the answer is not one of Prometheus")
		}
		values = append(values, v)
	}
	return values, nil
}

// sample is a time and a value.
type sample [2]any

// Object returns an error unless an expression over the variable object holds. Of a Secret it tells no more.
func Object(ctx context.Context, compiled *expression.Expression, object map[string]any) (string, error) {
	holds, err := compiled.Holds(ctx, expression.Map{"object": object})
	switch {
	case err != nil && object["kind"] == "Secret":
		return "", errors.New("the expression has no value")
	case err != nil:
		return "", fmt.Errorf("the expression has no value: %w", err)
	case !holds:
		return "", errors.New("the expression is false")
	}
	return "the expression is true", nil
}
