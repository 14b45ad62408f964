package decrypt

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/getsops/sops/v3/keyservice"
)

// TestKMSRegionsNameNoHost has ARNs of encrypted files, which anyone who may push writes. Their region is a part of the
// name of the host that receives the signed request.
func TestKMSRegionsNameNoHost(t *testing.T) {
	for _, region := range []string{"evil.example", "evil.example/", "x/../y", "eu-west-1.evil.example#", "@evil",
		"a b", "", "eu\nwest", strings.Repeat("a", 64)} {
		asked := false
		k := &Keys{Transport: http.DefaultTransport,
			AWS: func(context.Context, string) (aws.CredentialsProvider, error) {
				asked = true
				return nil, errors.New("asked for credentials")
			}}
		_, err := k.withAWS(t.Context(), &keyservice.KmsKey{Arn: "arn:aws:kms:" + region + ":1:key/x"}, nil)
		if err == nil || asked || !strings.Contains(err.Error(), "region") {
			t.Errorf("region %q: %v", region, err)
		}
	}
}
