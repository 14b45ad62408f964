package bucket

import (
	"errors"
	"net/http"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// failed is the fault of a failed operation.
func failed(format string, args ...any) *fault.Fault {
	return fault.New(sourcev1.BucketOperationFailedReason, format, args...)
}

// refused is the fault of a failed login.
func refused(format string, args ...any) *fault.Fault {
	return fault.New(meta.AuthenticationFailedReason, format, args...)
}

// storageFailed is the fault of a failed disk operation.
func storageFailed(what string, err error) *fault.Fault {
	return fault.New(meta.StorageOperationFailedReason, "%s", what).Because(err).
		WithHint("Check that --storage-path is writable and has free space. The last artifact stays available")
}

// response is an error response of a provider.
type response struct {
	status  int    // HTTP status; 0 if there was no response
	code    string // error code of the provider, such as NoSuchBucket
	message string
}

// explain returns the fault of a failed request. What describes the operation; err is the error of the client, and said
// the response that it contains, if any.
func explain(what string, err error, said response) error {
	if egress.IsPlainHTTP(err) {
		return failed("%s: the endpoint answered plain HTTP", what).
			WithHint("Use an endpoint with TLS, or set spec.insecure: true")
	}
	if inner := fault.As(err); said.status == 0 && inner != nil { // from the transport or the login
		f := failed("%s", what).Because(inner).After(inner.RetryAfter)
		if inner.Reason != "" {
			f.Reason = inner.Reason
		}
		f.Terminal = inner.Terminal
		return f
	}
	cause := fault.WithoutURL(err)
	if said.status != 0 {
		cause = errors.New(http.StatusText(said.status))
		if said.code != "" {
			cause = errors.New(shorten(said.code))
		}
		if said.message != "" {
			cause = errors.New(cause.Error() + ": " + shorten(said.message))
		}
	}
	switch {
	case said.code == "NoSuchBucket" || said.code == "ContainerNotFound":
		return failed("%s", what).Because(cause).
			WithHint("Create the bucket, or correct spec.bucketName, spec.endpoint and spec.region")
	case said.code == "RequestTimeTooSkewed":
		return refused("%s", what).Because(cause).WithHint("Correct the clock of the node that the controller runs on")
	case said.status == http.StatusUnauthorized || said.status == http.StatusForbidden:
		return refused("%s", what).Because(cause).
			WithHint("Check the credentials, or set spec.secretRef if it is not set. They must allow to list the " +
				"bucket and to read its objects")
	case said.status == http.StatusPreconditionFailed:
		return failed("%s: it changed after it was listed", what).
			WithHint("The bucket is listed again and the fetch retried")
	}
	return failed("%s", what).Because(cause)
}

// stsFailed is the fault of a failed request to a Security Token Service.
func stsFailed(endpoint string, err error) error {
	f := refused("the Security Token Service at '%s' returned no credentials", fault.RedactURL(endpoint)).
		WithHint("Check spec.sts and the Secrets that it names")
	if inner := fault.As(err); inner != nil {
		return f.Because(inner).After(inner.RetryAfter)
	}
	return f.Because(fault.WithoutURL(err))
}
