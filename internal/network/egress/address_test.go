package egress

import (
	"net/http"
	"testing"
)

// metadataHosts are hosts of URLs that name instance metadata, in the forms that resolvers and networks accept.
var metadataHosts = []string{
	"[64:ff9b::a9fe:a9fe]", "[64:ff9b::169.254.169.254]", "[64:ff9b:1::a9fe:a9fe]", "[64:ff9b:1:a9fe:a9:fe00::]",
	"[64:ff9b:1:a9:fe:a9fe::]", "[64:ff9b:1:0:a9:fea9:fe00::]", "[::a9fe:a9fe]", "[::ffff:0:a9fe:a9fe]",
	"[2002:a9fe:a9fe::1]", "[::ffff:168.63.129.16]", "[64:ff9b::100.100.100.200]", "[fd00:ec2::23]", "[fd20:ce::254]",
	"[fd00:c1::a9fe:a9fe]", "[fd00:42::42]", "192.0.0.192", "[fe80::a9fe:a9fe%25eth0]",
	"169.254.169.254.", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "169.16689662",
	"0xA9.0xFE.169.254", "169\uff61254\u3002169.254", "\uff11\uff16\uff19.254.169.254",
}

func TestAddressesInOtherFormsAreRejected(t *testing.T) {
	t.Parallel()
	u, received := countingProxy(t)
	p := &Policy{RefuseLinkLocal: true, RefuseLoopback: true}
	for _, host := range append([]string{"0x7f.1", "[64:ff9b::7f00:1]", "[::ffff:127.0.0.1]", "0", "127.1."},
		metadataHosts...) {
		through := &Policy{RefuseLinkLocal: true, RefuseLoopback: true}
		transport, err := through.Transport(Options{Proxy: u})
		if err != nil {
			t.Fatal(err)
		}
		for _, scheme := range []string{"http://", "https://"} {
			_, _, err = get(t, &http.Client{Transport: transport}, scheme+host+"/latest/meta-data")
			if !IsRefused(err) {
				t.Errorf("%s through a proxy: got %v", host, err)
			}
		}
		if _, _, err = get(t, client(t, p, Options{}), "http://"+host+"/latest"); !IsRefused(err) {
			t.Errorf("%s: got %v", host, err)
		}
	}
	if received.Load() != 0 {
		t.Errorf("the proxy got %d requests", received.Load())
	}
	for _, host := range []string{"169.254.example.com", "10.0.0.1", "1.1.1.1", "2001:db8::1", "64:ff9b::808:808",
		"example", "", "1.2.3.4.5", "a9fea9fe", "fd00:ec3::1", "2002:808:808::1", "fd12::1"} {
		if err := p.CheckHost(host); err != nil {
			t.Errorf("%q: %v", host, err)
		}
	}
	if err := (&Policy{}).CheckHost("169.254.169.254"); err != nil {
		t.Errorf("a policy that refuses nothing: %v", err)
	}
}

// TestResolvedAddressesAreRejected has the addresses that a name resolves to, when the connection is opened.
func TestResolvedAddressesAreRejected(t *testing.T) {
	p := &Policy{RefuseLinkLocal: true, RefuseLoopback: true}
	for _, address := range []string{"[64:ff9b::a9fe:a9fe]:80", "[64:ff9b::7f00:1]:80", "[fd00:ec2::23]:80",
		"[fe80::1%eth0]:80", "[::]:80", "[2002:7f00:1::]:80", "nonsense"} {
		if p.checkAddress("tcp", address, nil) == nil {
			t.Errorf("%s is accepted", address)
		}
	}
}
