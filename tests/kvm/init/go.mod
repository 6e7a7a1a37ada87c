module sandbar/kvm-test-init

go 1.24.0
